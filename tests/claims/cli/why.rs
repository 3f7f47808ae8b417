//! The paragraph about a key that is busy.

use tokio::io::{AsyncBufReadExt as _, BufReader};

use lockmacro_tests::Postgres;

use super::*;

/// A waiter knows how long its key is usually held.
#[on(redis, postgres)]
async fn a_stuck_holder_is_found_by_one_command(backend: &Backend) {
    let key = &*backend.key("order:1");
    let (stuck, other) = (manager(backend, "web-3:4711").await, manager(backend, "web-4:12").await);
    for _ in 0..3 {
        hold(&other, key).await.release().await.expect("held");
    }
    let lock = Lock::new(key).ttl(LONG_TTL).wait(LONG_TTL).name("audit").manager(&stuck);
    let held = lock.acquire().await.expect("free");
    let waiting = wait_for(&other, key).await;
    let said = tool(backend, &["why", key]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let begins = format!("`{key}` is held by web-3:4711:audit, which asked for it ");
    assert!(said.out.starts_with(&begins), "{said:?}");
    assert!(said.shows("One caller waits, web-4:12 for "), "{said:?}");
    // Only Redis keeps what the waiter knows.
    let is_redis = backend.database().is_none();
    assert_eq!(said.shows("It is usually held for "), is_redis, "{said:?}");
    let report = tool(backend, &["why", key, "--json"]).await.json();
    let counted = (&report["processes"], &report["callers"], &report["is_stuck"]);
    assert_eq!(counted, (&1.into(), &1.into(), &false.into()), "{report}");
    assert!(report["asked_ms"].as_u64().is_some_and(|asked| asked < 60_000), "{report}");
    assert_eq!(report["usual_hold_ms"].is_u64(), is_redis, "{report}");
    assert_eq!(report["lock"]["holder"], "web-3:4711:audit");
    held.release().await.expect("held");
    in_time(waiting).await.expect("its turn").release().await.expect("held");
    let said = tool(backend, &["why", key]).await;
    assert!(said.out.starts_with(&format!("Nothing holds `{key}`. Nobody waits")), "{said:?}");
}

/// Its holder has gone, and acquirers are refused all the same.
#[on(postgres)]
async fn a_transaction_that_has_checked_a_fence_is_named(backend: &Backend) {
    let key = &*backend.key("order:1");
    let locks = manager(backend, "web-3:4711").await;
    let lock = Lock::new(key).ttl(LONG_TTL).fenced().manager(&locks);
    let held = lock.acquire().await.expect("free");
    let check = held.fence_check().expect("it has one");
    let database = backend.database().expect("it is one");
    let client = database.connect().await;
    client.batch_execute("SET application_name = 'writer'; BEGIN").await.expect("begun");
    client.execute(check.sql(), &[&check.key(), &check.fence()]).await.expect("in time");
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.expect("one").get(0);
    let names = format!(
        "Whatever becomes of the lock, `{key}` is granted to nobody else until a transaction has \
         ended that has locked its fence, as a check does: transaction "
    );
    let process = format!(" of process {pid} (postgres, writer, since ");
    let said = tool(backend, &["why", key]).await;
    assert!(said.out.starts_with(&format!("`{key}` is held by web-3:4711")), "{said:?}");
    assert!(said.shows(&names) && said.shows(&process), "{said:?}");
    assert!(!said.shows("free when the lease ends"), "{said:?}");
    held.release().await.expect("held");
    assert!(lock.acquire().await.expect_err("checked").is_busy());
    let said = tool(backend, &["why", key]).await;
    assert!(said.out.starts_with(&format!("Nothing holds `{key}`. {names}")), "{said:?}");
    assert!(said.shows("pg_terminate_backend") && !said.shows("another key,"), "{said:?}");
    client.batch_execute("ROLLBACK").await.expect("ended");
    // A grant in flight locks the same row.
    let token = format!("{:032x}", 7);
    let ask = format!(
        "BEGIN; SELECT lm1.ask('{{{key}}}', '{token}', 60000, '{{1}}', true, NULL, NULL, 1, 0)"
    );
    client.batch_execute(&ask).await.expect("asked");
    let said = tool(backend, &["why", key, "--json"]).await.json();
    assert_eq!(said["checked_by"], Value::Null);
    client.batch_execute("ROLLBACK").await.expect("ended");
    lock.acquire().await.expect("free").release().await.expect("held");
}

/// It stays after its connection, and also when the server restarts.
#[tokio::test]
async fn a_prepared_transaction_that_has_checked_a_fence_is_named() {
    let database = Postgres::with(&["-F", "-c", "max_prepared_transactions=2"]).await;
    let url = database.url();
    let locks = LockManager::connect(&url).await.expect("there");
    let lock = Lock::new("order:1").fenced().manager(&locks);
    let held = lock.acquire().await.expect("free");
    let check = held.fence_check().expect("it has one");
    let client = database.connect().await;
    client.batch_execute("BEGIN").await.expect("begun");
    client.execute(check.sql(), &[&check.key(), &check.fence()]).await.expect("in time");
    client.batch_execute("PREPARE TRANSACTION 'a writer'").await.expect("prepared");
    held.release().await.expect("held");
    let said = tool_at(&url, &["why", "order:1"]).await;
    assert!(said.shows("as a check does: the prepared transaction 'a writer'."), "{said:?}");
    client.batch_execute("ROLLBACK PREPARED 'a writer'").await.expect("ended");
    assert!(!tool_at(&url, &["why", "order:1"]).await.shows("transaction"));
}

#[on(postgres)]
async fn a_grant_that_is_just_over_is_no_transaction_that_keeps_a_key(backend: &Backend) {
    let key = &*backend.key("order:1");
    let locks = manager(backend, "web-3:4711").await;
    let database = backend.database().expect("it is one");
    let (ends, granting) = tokio::sync::watch::channel(());
    let mut tasks = tokio::task::JoinSet::new();
    for nth in 0..3 {
        let client = database.connect().await;
        let token = format!("{nth:032x}");
        let ask = format!(
            "SELECT lm1.ask('{{{key}}}', '{token}', 60000, '{{1}}', true, NULL, NULL, 1, 0)"
        );
        let release = format!("SELECT lm1.release('{{{key}}}', '{token}', 0)");
        let granting = granting.clone();
        tasks.spawn(async move {
            while granting.has_changed().is_ok() {
                client.batch_execute(&ask).await.expect("asked");
                client.batch_execute(&release).await.expect("released");
            }
        });
    }
    for _ in 0..300 {
        assert_eq!(locks.inspector().checked_by(key).await, Ok(None));
    }
    drop(ends);
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
}

/// The job would run twice.
#[on(redis, postgres)]
async fn a_lock_that_min_hold_keeps_is_no_reason_to_release_it(backend: &Backend) {
    let job = manager(backend, "web-3:4711").await;
    let [one, shared] = ["job:1", "job:2"].map(|key| backend.key(key));
    for lock in [Lock::new(&*one), Lock::new(&*shared).permits(2)] {
        let lock = lock.ttl(LONG_TTL).min_hold(LONG_TTL).name("daily").manager(&job);
        lock.acquire().await.expect("free").release().await.expect("held");
    }
    let said = tool(backend, &["why", &one]).await;
    let begins = format!("`{one}` is held by web-3:4711:daily, which has ended, and whose `min_");
    assert!(said.out.starts_with(&begins), "{said:?}");
    let of_two = tool(backend, &["why", &shared]).await;
    let begins =
        format!("`{shared}` is held by 1 of 2 permits: web-3:4711:daily, which has ended,");
    assert!(of_two.out.starts_with(&begins), "{of_two:?}");
    for said in [said, of_two] {
        assert!(said.shows("nothing to do") && !said.shows("--force"), "{said:?}");
    }
    let report = tool(backend, &["why", &one, "--json"]).await.json();
    assert_eq!((&report["is_stuck"], &report["lock"]["is_kept"]), (&false.into(), &true.into()));
    let said = tool(backend, &["locks", &one]).await;
    assert!(said.shows("daily, kept by min_hold"), "{said:?}");
    let said = tool(backend, &["queue", &one]).await;
    let begins = format!("`{one}` is kept by the `min_hold` of web-3:4711:daily for another ");
    assert!(said.out.starts_with(&begins), "{said:?}");
    let busy = Lock::new(&*one).manager(&job).acquire().await.expect_err("it is kept");
    assert!(busy.holder().is_kept, "{busy:?}");
    // The tool takes them all the same.
    for key in [one, shared] {
        let said = tool(backend, &["release", &key, "--force", "--yes"]).await;
        assert_eq!(said.code, Some(0), "{said:?}");
        let next = Lock::new(key).permits(2).manager(&job);
        next.acquire().await.expect("free").release().await.expect("held");
    }
}

#[on(redis, postgres)]
async fn the_holders_of_a_shared_lock_are_listed_with_the_number_of_permits(backend: &Backend) {
    let (gpu, all) = (&*backend.key("gpu"), &*backend.key("*"));
    let mut held = Vec::new();
    for label in ["web-1:11", "web-2:22"] {
        let manager = manager(backend, label).await;
        let lock = Lock::new(gpu).ttl(LONG_TTL).permits(3).name("render").manager(&manager);
        held.push(lock.acquire().await.expect("there is a permit"));
    }
    let other = manager(backend, "web-3:33").await;
    held.push(hold(&other, &backend.key("alone")).await);
    let owners = ["web-1:11:render", "web-2:22:render"];
    let said = tool(backend, &["why", gpu]).await;
    let begins = format!("`{gpu}` is held by 2 of 3 permits: ");
    assert!(said.out.starts_with(&begins), "{said:?}");
    assert!(owners.iter().all(|owner| said.out.contains(owner)), "{said:?}");
    for words in [&["why", gpu, "--json"][..], &["locks", gpu, "--holders", "--json"]] {
        let report = tool(backend, words).await.json();
        let seen = report["locks"].get(0).unwrap_or(&report);
        let mut found: Vec<_> = seen["holders"].as_array().expect("a list").iter().collect();
        found.sort_by_key(|holder| holder["holder"].to_string());
        for (holder, owner) in found.iter().zip(owners) {
            assert_eq!((&holder["holder"], &holder["permits"]), (&owner.into(), &3.into()));
            assert_eq!((&holder["is_kept"], holder["since"].is_u64()), (&false.into(), true));
            assert!(holder["left_ms"].as_u64().is_some_and(|left| left <= 60_000), "{report}");
        }
        assert_eq!(found.len(), 2, "{report}");
    }
    let said = tool(backend, &["locks", all, "--holders"]).await;
    assert_eq!(said.rows().len(), 4, "{said:?}");
    assert!(owners.iter().all(|owner| said.out.contains(owner)), "{said:?}");
    let said = tool(backend, &["locks", gpu]).await;
    assert!(said.shows("and 1 other, of 3 permits"), "{said:?}");
    let seen = other.inspector().holders(gpu, 1).await.expect("answered");
    assert_eq!((seen.items.len(), seen.truncated, seen.items[0].permits), (1, true, Some(3)));
}

/// Makes a lock that is held since 1970.
fn make_stuck(server: &Server) {
    let held = format!("web-3:4711:audit 1/{:032x}", u128::MAX);
    server.admin().ask::<()>(&["SET", "order:1", &held, "PX", "60000"]);
}

#[tokio::test]
async fn the_line_that_is_shown_has_no_password_and_no_url_that_the_environment_has() {
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let socket = directory.path().join("redis.sock").to_string_lossy().into_owned();
    let server = Server::with(&["--unixsocket", &socket, "--requirepass", "hunter2"]);
    make_stuck(&server);
    for url in [server.url(), format!("redis+unix://{socket}?pass=hunter2")] {
        let said = tool_at("", &["why", "order:1", "--url", &url]).await;
        let line = "`lockmacro --url … release --force -- order:1`, with the URL in place of `…`.";
        assert!(said.shows(line) && !said.shows("hunter2"), "{said:?}");
        // An empty variable names nothing, and the next one counts.
        let mut command = command(&url, &["why", "order:1"]);
        command.env("LOCKMACRO_URL", "");
        let said = super::said(command).await;
        assert!(said.shows("`lockmacro release --force -- order:1`."), "{said:?}");
    }
}

/// Redis lists the first thousand, and the oldest may be another one.
#[tokio::test]
async fn a_list_of_holders_that_was_cut_is_said_to_be() {
    let server = Server::start();
    let fill = "local now = redis.call('TIME')[1] * 1000
    redis.call('SET', 'gpu', 'web-1:7 1/shared', 'PX', 60000)
    for nth = 1, 1001 do
        local token = string.format('web-1:7 1/%032x', nth)
        redis.call('ZADD', 'lm1:wh:{gpu}', now + 60000, token)
    end";
    server.admin().ask::<()>(&["EVAL", fill, "0"]);
    let said = tool(&server, &["why", "gpu"]).await;
    let cut = "Only the 1000 holders whose leases end first were compared.";
    assert!(said.shows("and 996 more") && said.shows(cut), "{said:?}");
    let report = tool(&server, &["why", "gpu", "--json"]).await.json();
    assert_eq!(report["holders_truncated"], true);
    let said = tool(&server, &["locks", "gpu", "--holders"]).await;
    assert!(said.out.lines().last().expect("lines").contains("… and 1 more"), "{said:?}");
    let report = tool(&server, &["locks", "gpu", "--holders", "--json"]).await.json();
    assert_eq!(report["locks"][0]["holders_truncated"], true);
}

/// As of a program of an earlier version.
#[tokio::test]
async fn a_holder_whose_time_nobody_knows_does_not_hide_a_stuck_one() {
    let server = Server::start();
    let fill = "local ends = redis.call('TIME')[1] * 1000 + 60000
    redis.call('SET', 'gpu', 'web-1:7 1/shared', 'PX', 60000)
    for nth, label in ipairs({ 'web-1:7 1/', 'web-2:8/' }) do
        redis.call('ZADD', 'lm1:wh:{gpu}', ends, label .. string.format('%032x', nth))
    end";
    server.admin().ask::<()>(&["EVAL", fill, "0"]);
    let report = tool(&server, &["why", "gpu", "--json"]).await.json();
    assert_eq!(report["is_stuck"], true, "{report}");
    assert_eq!(report["holders"][1]["holder"], "web-2:8");
    assert!(
        report["text"].as_str().is_some_and(|text| text.contains("Look at process 7 on web-1"))
    );
}

#[tokio::test]
async fn the_line_that_is_shown_releases_the_lock_when_the_url_was_an_argument() {
    let server = Server::start();
    let locks = manager(&server, "web-3:4711").await;
    make_stuck(&server);
    let said = tool_at("", &["why", "order:1", "--url", &server.url()]).await;
    let line = said.out.split('`').find(|line| line.starts_with("lockmacro ")).expect("a line");
    let confirmed = line.replace("--force", "--force --yes");
    let words: Vec<_> = confirmed.split(' ').skip(1).collect();
    let said = tool_at("", &words).await;
    assert_eq!((said.code, said.shows("was taken away")), (Some(0), true), "{line}: {said:?}");
    assert!(locks.inspector().lock("order:1").await.expect("answered").is_none());
}

/// Also where the command is the tool itself, which could not pass on SIGKILL.
#[tokio::test]
async fn the_line_that_ends_a_command_of_the_tool_ends_all_of_it_and_frees_the_lock() {
    let work = ["sh", "-c", "echo begun; sleep 300 & wait"];
    let inner = [&[env!("CARGO_BIN_EXE_lockmacro"), "run", "inner", "--"], &work[..]].concat();
    for command in [&work[..], &inner] {
        let server = Server::start();
        let words = [&["run", "job", "--"], command].concat();
        let mut tool = super::command(&server.url(), &words);
        let mut tool = tool.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(tool.stdout.take().expect("a pipe")).lines();
        assert_eq!(in_time(lines.next_line()).await.expect("a line").as_deref(), Some("begun"));
        // As if it had the lock since 1970.
        let token = server.admin().get("job").expect("held");
        let [label, _, rest] = token.splitn(3, ' ').collect::<Vec<_>>()[..] else {
            panic!("{token}")
        };
        let long_ago = format!("{label} 1 {rest}");
        server.admin().ask::<()>(&["SET", "job", &long_ago, "KEEPTTL"]);
        let said = tool_at(&server.url(), &["why", "job"]).await;
        server.admin().ask::<()>(&["SET", "job", &token, "KEEPTTL"]);
        let line = said.out.split('`').find(|line| line.starts_with("kill ")).expect("a line");
        let run = || std::process::Command::new("sh").args(["-c", line]).output().expect("sh");
        assert!(run().status.success(), "{line}");
        assert_eq!(in_time(tool.wait()).await.expect("it ends").signal(), Some(15), "{line}");
        // Nobody has the other end of the pipe.
        assert_eq!(in_time(lines.next_line()).await.expect("the end"), None);
        assert_eq!((server.admin().get("job"), server.admin().get("inner")), (None, None));
        let again = String::from_utf8_lossy(&run().stderr).into_owned();
        assert!(again.contains("No such process"), "{line}: {again}");
    }
}
