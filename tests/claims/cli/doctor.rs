//! Servers that are each broken in one way, and what the tool says of them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Instant, SystemTime};

use lockmacro_tests::{Clock, Cluster, Postgres};

use super::*;

/// The codes and the fixes of what is found, and whether any of it is a problem.
async fn examined(url: &str, more: &[&str]) -> (Vec<(String, String)>, bool) {
    let said = tool_at(url, &[&["doctor", "--json"], more].concat()).await;
    let report = said.json();
    assert_eq!(report["format"], 1);
    let text = |finding: &Value, name: &str| finding[name].as_str().expect(name).to_owned();
    let findings = report["findings"].as_array().expect("a list");
    let found = findings.iter().map(|finding| (text(finding, "code"), text(finding, "fix")));
    let is_ill = findings.iter().any(|finding| finding["level"] == "problem");
    assert_eq!((said.code, report["healthy"] == false), (Some(i32::from(is_ill)), is_ill));
    (found.collect(), is_ill)
}

/// The fix of the first problem of a server.
async fn fix(url: &str, more: &[&str], code: &str) -> String {
    let (found, is_ill) = examined(url, more).await;
    assert!(is_ill, "{found:?}");
    assert_eq!(found[0].0, code, "{found:?}");
    found[0].1.clone()
}

/// The fix of a hint of a server without a problem.
async fn hint(url: &str, more: &[&str], code: &str) -> String {
    let (found, is_ill) = examined(url, more).await;
    assert!(!is_ill, "{found:?}");
    let hint = found.iter().find(|(found, _)| found == code);
    hint.unwrap_or_else(|| panic!("{code}: {found:?}")).1.clone()
}

/// Whether a server has no problem, and no hint but that it writes nothing to its disk.
async fn is_well(url: &str, more: &[&str]) -> bool {
    let (found, is_ill) = examined(url, more).await;
    !is_ill && found.iter().all(|(code, _)| code == "not_durable")
}

/// Runs a line as it is shown.
fn run(fix: &str) {
    let output = std::process::Command::new("sh").args(["-c", fix]).output().expect("sh");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "OK", "{fix}: {output:?}");
}

/// The URL of a user with these rights only.
fn user(server: &Server, rights: &str) -> String {
    let words = ["ACL", "SETUSER", "shop", "reset", "on", ">password"];
    let words: Vec<_> = words.into_iter().chain(rights.split(' ')).collect();
    server.admin().ask::<()>(&words);
    server.url_as("shop", "password")
}

#[tokio::test]
async fn a_server_that_is_well_has_no_finding() {
    let server = Server::with(&["--appendonly", "yes"]);
    assert_eq!(examined(&server.url(), &[]).await, (vec![], false));
    let said = tool_at(&server.url(), &["doctor"]).await;
    assert!(said.shows("primary") && said.shows("no problem was found"), "{said:?}");
}

#[tokio::test]
async fn a_missing_right_is_mended_by_the_line_that_is_shown() {
    let server = Server::start();
    let url = user(&server, "~* resetchannels +@all -del -subscribe -pubsub|numsub");
    let line = fix(&url, &[], "rights").await;
    assert!(line.ends_with(" ACL SETUSER shop +del"), "{line}");
    run(&line);
    let line = hint(&url, &[], "rights_of_waiters").await;
    assert!(line.ends_with(" ACL SETUSER shop +subscribe '+pubsub|numsub' '&lm1:*'"), "{line}");
    run(&line);
    assert!(is_well(&url, &[]).await);
}

#[tokio::test]
async fn the_rights_of_a_user_of_some_keys_are_checked_on_a_key() {
    let server = Server::start();
    let url = user(&server, "~report:* ~lm1:w?:{report:*} &lm1:* +@all");
    assert!(hint(&url, &[], "rights_unknown").await.starts_with("lockmacro doctor KEY"));
    assert!(is_well(&url, &["report:7"]).await);
    run(&fix(&url, &["order:7"], "rights").await);
    assert!(is_well(&url, &["order:7"]).await);
    let locks = LockManager::connect(&url).await.expect("there");
    hold(&locks, "order:7").await.release().await.expect("allowed");
}

/// Not even to ask for the rights.
#[tokio::test]
async fn a_user_who_may_call_no_script_lacks_that() {
    let server = Server::start();
    let url = user(&server, "~* &* +@all -eval -evalsha -acl");
    let line = fix(&url, &[], "rights").await;
    assert!(line.ends_with(" ACL SETUSER shop +evalsha +eval"), "{line}");
    run(&line);
    assert!(is_well(&url, &[]).await);
}

#[tokio::test]
async fn the_right_to_a_key_is_no_right_to_others_and_that_of_a_pattern_is_for_all_of_it() {
    let server = Server::start();
    let locks = async |url: &str, key: &'static str| {
        let locks = LockManager::connect(url).await.expect("there");
        hold(&locks, key).await.release().await.expect("allowed");
        Lock::new("order1").manager(&locks).acquire().await.expect_err("not allowed");
    };
    let url = user(&server, "~report:* &lm1:* +@all");
    let line = fix(&url, &["order[1]"], "rights").await;
    assert!(line.contains(r" '~order\[1\]' "), "{line}");
    run(&line);
    locks(&url, "order[1]").await;
    let url = user(&server, "~order:* &lm1:* +@all");
    let line = fix(&url, &["order:7"], "rights").await;
    let printed = tool_at("", &["acl", "order:*"]).await.out;
    let keys = printed.split_whitespace().filter(|word| word.starts_with('~'));
    let keys: Vec<_> = keys.map(|word| format!("'{word}'")).collect();
    assert!(line.ends_with(&format!(" ACL SETUSER shop {}", keys.join(" "))), "{line}");
    run(&line);
    assert!(is_well(&url, &["order:8"]).await);
    locks(&url, "order:9").await;
}

/// As the page says: `lockmacro acl` prints all that a user needs.
#[tokio::test]
async fn a_user_with_the_rights_that_are_printed_has_no_problem() {
    let server = Server::start();
    for (pattern, features) in [
        ("o:*", "none"),
        ("o:*", "wait,fence"),
        ("o:*", "wait,several,defer,inspect"),
        ("*", "none"),
        ("*", "wait,fence"),
    ] {
        let printed = tool_at("", &["acl", pattern, "--features", features]).await.out;
        let rights = printed.trim().split_once(">password ").expect("rights").1;
        let url = user(&server, rights);
        let (found, is_ill) = examined(&url, &["o:1"]).await;
        assert!(!is_ill, "{pattern} {features}: {found:?}");
        let polls = found.iter().any(|(code, _)| code == "rights_of_waiters");
        assert_eq!(polls, features == "none", "{pattern} {features}: {found:?}");
    }
}

/// ACL SETUSER refuses blanks.
#[tokio::test]
async fn the_right_to_a_key_with_blanks_has_a_wildcard_for_each() {
    let server = Server::start();
    for key in ["a b", "a\tb\u{a0}c"] {
        let url = user(&server, "~report:* &lm1:* +@all");
        run(&fix(&url, &[key], "rights").await);
        assert!(is_well(&url, &[key]).await);
        let locks = LockManager::connect(&url).await.expect("there");
        hold(&locks, key).await.release().await.expect("allowed");
    }
}

#[tokio::test]
async fn a_user_with_few_rights_gets_all_of_them_by_the_lines_that_are_shown() {
    let server = Server::start();
    let url = user(&server, "resetkeys &lm1:* +@all -subscribe -del");
    let (found, _) = examined(&url, &[]).await;
    let codes: Vec<_> = found.iter().map(|(code, _)| &**code).collect();
    assert_eq!(codes, ["rights_unknown", "rights_of_waiters", "not_durable"]);
    let url = user(&server, "resetkeys resetchannels +ping");
    for round in 0.. {
        let (found, is_ill) = examined(&url, &["order:7"]).await;
        assert!(!found.iter().any(|(code, _)| code == "no_pushes"), "{found:?}");
        if !is_ill && round > 0 {
            break;
        }
        assert!(is_ill && round < 4, "{found:?}");
        found.iter().filter(|(code, _)| code.starts_with("rights")).for_each(|(_, line)| run(line));
    }
    let locks = LockManager::connect(&url).await.expect("let in");
    hold(&locks, "order:7").await.release().await.expect("allowed");
}

#[tokio::test]
async fn pushes_arrive_at_each_node_of_a_cluster() {
    let cluster = Cluster::start(3, 0).await;
    let (found, is_ill) = examined(&cluster.url(), &[]).await;
    let pushes = found.iter().filter(|(code, _)| code == "no_pushes").count();
    assert_eq!((pushes, is_ill), (0, false), "{found:?}");
}

#[tokio::test]
async fn a_server_that_evicts_locks_is_mended_by_the_command_that_is_shown() {
    let server = Server::with(&["--maxmemory-policy", "volatile-lru"]);
    hint(&server.url(), &[], "eviction").await;
    server.admin().configure("maxmemory", "100mb");
    run(&fix(&server.url(), &[], "eviction").await);
    assert!(is_well(&server.url(), &[]).await);
}

#[tokio::test]
async fn a_full_server_is_found() {
    let server = Server::with(&["--maxmemory", "100mb"]);
    assert!(is_well(&server.url(), &[]).await);
    server.admin().configure("maxmemory", "1");
    assert!(fix(&server.url(), &[], "full").await.starts_with("raise its maxmemory"));
}

#[tokio::test]
async fn a_replica_names_its_primary_and_the_primary_a_replica_that_is_behind() {
    let primary = Server::start();
    let port = primary.port().to_string();
    let replica = Server::with(&["--replicaof", "127.0.0.1", &port]);
    let named = format!("the primary, 127.0.0.1:{port}, in the URL");
    assert_eq!(fix(&replica.url(), &[], "replica").await, named);
    assert_eq!(hint(&primary.url(), &[], "asynchronous").await, "`?replicated=1` in the URL");
    let acked = format!("{}?replicated=1", primary.url());
    let up_to_date = async || is_well(&acked, &[]).await;
    eventually("the replica is up to date", IN_TIME, up_to_date).await;
    replica.pause();
    eventually("the replica is behind", IN_TIME, async || !up_to_date().await).await;
    assert!(hint(&acked, &[], "replica_behind").await.ends_with("INFO replication"));
    fix(&acked.replace("=1", "=2"), &[], "too_few_replicas").await;
    replica.resume();
}

#[tokio::test]
async fn a_server_that_refuses_writes_for_want_of_replicas_is_found() {
    let server = Server::with(&["--min-replicas-to-write", "2"]);
    let line = fix(&server.url(), &[], "too_few_replicas").await;
    run(line.strip_prefix("start more, or ").expect("a command"));
    assert!(is_well(&server.url(), &[]).await);
}

#[tokio::test]
async fn a_server_that_accepts_and_does_not_answer_is_told_from_one_that_is_down() {
    let mut server = Server::start();
    server.pause();
    let said = tool_at(&server.url(), &["doctor"]).await;
    assert!(said.shows("it accepts connections and does not answer"), "{said:?}");
    server.resume();
    server.kill();
    let said = tool_at(&server.url(), &["doctor"]).await;
    assert!(!said.shows("it accepts") && said.shows("start the server"), "{said:?}");
}

#[tokio::test]
async fn a_node_of_a_cluster_wants_another_url() {
    let server = Server::with(&["--cluster-enabled", "yes"]);
    assert!(fix(&server.url(), &[], "cluster").await.starts_with("`redis-cluster://`"));
}

#[tokio::test]
async fn a_server_that_cannot_save_its_data_is_found() {
    let server = Server::with(&["--dbfilename", "dump"]);
    let directory: Vec<String> = server.admin().ask(&["CONFIG", "GET", "dir"]);
    std::fs::create_dir(format!("{}/dump", directory[1])).expect("it can be made");
    server.admin().ask::<()>(&["BGSAVE"]);
    eventually("the save has failed", IN_TIME, async || {
        let info: String = server.admin().ask(&["INFO", "persistence"]);
        info.contains("rdb_last_bgsave_status:err")
    })
    .await;
    assert!(fix(&server.url(), &[], "not_saved").await.ends_with("BGSAVE"));
}

#[tokio::test]
async fn a_server_that_is_short_of_connections_is_found() {
    let server = Server::with(&["--maxclients", "4"]);
    let _others = [server.admin(), server.admin()];
    assert!(is_well(&server.url(), &[]).await);
    let _another = server.admin();
    let line = hint(&server.url(), &[], "connections").await;
    assert!(line.ends_with(" CONFIG SET maxclients 8"), "{line}");
}

/// A server whose clock is ahead by so long, and runs at this rate until the function is called.
fn with_clock(ahead: Duration, rate: f64) -> (Server, impl FnOnce()) {
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("later") + ahead;
    let (began, clock) = (Instant::now(), Arc::new(Clock::at(at)));
    let server = Server::with_clock(Arc::clone(&clock));
    let ends = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&ends);
    let runs = thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            clock.set(at + began.elapsed().mul_f64(rate));
            thread::sleep(Duration::from_micros(200));
        }
    });
    let end = move || {
        ends.store(true, Ordering::Relaxed);
        runs.join().expect("it ends");
    };
    (server, end)
}

#[tokio::test]
async fn a_clock_that_runs_fast_or_has_another_date_is_found() {
    let (server, end) = with_clock(Duration::ZERO, 1.05);
    // Not where the answers take too long to tell.
    let is_found = async || {
        let (found, _) = examined(&server.url(), &[]).await;
        found.iter().any(|(code, _)| code == "clock_rate")
    };
    eventually("the rate is found", LONG_TTL, is_found).await;
    end();
    let (server, end) = with_clock(Duration::from_secs(3_600), 1.0);
    hint(&server.url(), &[], "clock_ahead").await;
    end();
}

#[tokio::test]
async fn a_server_that_is_away_or_refuses_the_login_is_found() {
    let mut server = Server::with(&["--requirepass", "secret"]);
    let wrong = server.url_as("", "wrong");
    assert_eq!(fix(&wrong, &[], "unreachable").await, "`user:password@` in the URL");
    server.kill();
    let line = fix(&server.url(), &[], "unreachable").await;
    assert!(line.starts_with("start the server"), "{line}");
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_is_mended_by_the_command_that_is_shown() {
    let server = Server::with(&["--busy-reply-threshold", "1"]);
    let mut other = server.admin();
    let endless = thread::spawn(move || other.send::<()>(&["EVAL", "while true do end", "0"]));
    let mut admin = server.admin();
    let deadline = Instant::now() + IN_TIME;
    while admin.send::<String>(&["PING"]).is_ok() {
        assert!(Instant::now() < deadline, "the script runs");
    }
    let line = fix(&server.url(), &[], "unreachable").await;
    assert!(line.ends_with(" SCRIPT KILL"), "{line}");
    admin.ask::<()>(&["SCRIPT", "KILL"]);
    endless.join().expect("it ends").expect_err("it was killed");
    assert!(is_well(&server.url(), &[]).await);
}

#[tokio::test]
async fn the_nodes_of_a_redlock_are_in_one_table() {
    let (one, two) = (Server::start(), Server::start());
    let mut three = Server::start();
    let ports = [&one, &two, &three].map(|server| format!("127.0.0.1:{}", server.port()));
    let durable = format!("redlock://{}?durable", ports.join(","));
    // A node that is back would have forgotten the locks that it voted for.
    let (found, is_ill) = examined(&durable, &[]).await;
    assert!(is_ill, "{found:?}");
    let count =
        |code, found: &[(String, String)]| found.iter().filter(|(found, _)| found == code).count();
    assert_eq!(count("not_durable", &found), 3, "{found:?}");
    for (_, line) in found.iter().filter(|(code, _)| code == "not_durable") {
        run(line);
    }
    assert_eq!(examined(&durable, &[]).await, (vec![], false));
    // They are too young.
    let (found, _) = examined(&durable.replace("?durable", ""), &[]).await;
    assert_eq!((count("no_majority", &found), count("no_vote", &found)), (1, 3), "{found:?}");
    let of_young = found.iter().find(|(code, _)| code == "no_majority").expect("it is there");
    assert!(of_young.1.starts_with("wait until"), "{of_young:?}");
    three.kill();
    let said = tool_at(&durable, &["doctor"]).await;
    for port in &ports {
        assert!(said.out.lines().any(|line| line.starts_with(port)), "{said:?}");
    }
    // The others are a majority.
    assert!(said.shows("no problem was found") && said.shows("hint: "), "{said:?}");
    two.pause();
    let (found, is_ill) = examined(&durable, &[]).await;
    assert!(is_ill && count("unreachable", &found) == 2, "{found:?}");
    assert!(found.contains(&("no_majority".into(), "start the nodes that do not answer".into())));
    two.resume();
}

#[tokio::test]
async fn a_redlock_that_names_a_server_twice_is_told_so() {
    let (one, two) = (Server::start(), Server::start());
    let [twice, other] = [&one, &two].map(Server::port);
    let url = format!("redlock://127.0.0.1:{twice},localhost:{twice},127.0.0.1:{other}?durable");
    let (found, is_ill) = examined(&url, &[]).await;
    assert!(is_ill, "{found:?}");
    let named = "name each server once in the URL";
    assert!(found.iter().any(|(code, fix)| code == "one_server" && fix == named), "{found:?}");
    assert!(!found.iter().any(|(_, fix)| fix.starts_with("wait")), "{found:?}");
    // The others are too young.
    let (found, _) = examined(&url.replace("?durable", ""), &[]).await;
    assert!(found.contains(&("no_majority".into(), named.into())), "{found:?}");
}

#[tokio::test]
async fn a_database_without_the_schema_and_with_unsafe_settings_is_found() {
    let database = Postgres::with(&[]).await;
    let url = database.url_of("postgres", "schema=doctor");
    assert_eq!(fix(&url, &[], "unreachable").await, "lockmacro postgres install");
    // Not the schema of another URL.
    let said = tool_at("", &["--url", &url, "doctor", "--json"]).await.json();
    let line = "lockmacro --url … postgres install, with the URL in place of `…`";
    assert_eq!(said["findings"][0]["fix"], line);
    assert_eq!(tool_at(&url, &["postgres", "install"]).await.code, Some(0));
    assert_eq!(examined(&url, &[]).await, (vec![], false));
    let client = database.connect().await;
    let statements = async |text: &str| {
        for statement in text.split_terminator(';') {
            client.batch_execute(statement).await.expect(statement);
        }
    };
    statements("ALTER SYSTEM SET fsync = off;SELECT pg_reload_conf();").await;
    eventually("the setting is read", IN_TIME, async || examined(&url, &[]).await.1).await;
    statements(&fix(&url, &[], "not_durable").await).await;
    eventually("the setting is read", IN_TIME, async || !examined(&url, &[]).await.1).await;
}

/// PostgreSQL does not let such a procedure end a transaction, and so it finds itself in one.
#[tokio::test]
async fn a_check_of_fences_that_was_altered_is_found_and_mended_by_the_statements_that_are_shown() {
    let database = Postgres::with(&[]).await;
    let url = database.url_of("postgres", "");
    assert_eq!(tool_at(&url, &["postgres", "install"]).await.code, Some(0));
    let locks = LockManager::connect(&url).await.expect("there");
    let lock = Lock::new("order:1").fenced().manager(&locks);
    let check = lock.acquire().await.expect("free").fence_check().expect("it has one");
    let client = database.connect().await;
    let outside = async || {
        let checked = client.execute(check.sql(), &[&check.key(), &check.fence()]).await;
        checked.err().and_then(|error| error.code().map(|code| code.code().to_owned()))
    };
    assert_eq!(outside().await.as_deref(), Some("LM002"));
    let altered = "ALTER PROCEDURE lm1.check_fence SET work_mem = '8MB';
        ALTER PROCEDURE lm1.record_fence SECURITY DEFINER";
    client.batch_execute(altered).await.expect("altered");
    assert_eq!(outside().await, None, "it protects nothing, and does not say so");
    for name in ["check_fence", "record_fence"] {
        let statements = fix(&url, &[], "altered").await;
        let statements: Vec<_> = statements.split_inclusive(';').collect();
        let one = statements.iter().find(|statement| statement.contains(name)).expect(name);
        client.batch_execute(one).await.expect(one);
    }
    assert_eq!(examined(&url, &[]).await, (vec![], false));
    assert_eq!(outside().await.as_deref(), Some("LM002"));
}

/// As docs say to ask: by the user of the programs.
#[tokio::test]
async fn a_database_is_examined_by_a_user_without_rights_on_statistics() {
    let limits = ["max_connections=20", "superuser_reserved_connections=1"];
    let database = Postgres::with(&["-c", limits[0], "-c", limits[1]]).await;
    let client = database.connect().await;
    let admin = database.url();
    assert_eq!(tool_at("", &["postgres", "install", &admin]).await.code, Some(0));
    let user = "CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA lm1 TO app;
        GRANT EXECUTE ON ALL ROUTINES IN SCHEMA lm1 TO app";
    client.batch_execute(user).await.expect("made");
    let url = database.url_of("app", "");
    let others: Vec<_> = {
        let mut others = Vec::new();
        for _ in 0..16 {
            others.push(database.connect().await);
        }
        others
    };
    // There is room for two more, and those of the last run end after it.
    let have_ended = async || {
        let ours = "SELECT FROM pg_stat_activity WHERE usename = 'app'";
        let none = async || client.query(ours, &[]).await.expect("an answer").is_empty();
        eventually("its connections have ended", IN_TIME, none).await;
    };
    let (found, _) = examined(&url, &[]).await;
    assert_eq!(found.len(), 1, "{found:?}");
    have_ended().await;
    let fix = hint(&url, &[], "no_statistics").await;
    client.batch_execute(&fix).await.expect("granted");
    have_ended().await;
    assert!(hint(&url, &[], "connections").await.contains("max_connections"));
    drop(others);
    let limited = async |most: u32| {
        let limit = format!("ALTER ROLE app CONNECTION LIMIT {most}");
        client.batch_execute(&limit).await.expect("set");
    };
    limited(3).await;
    eventually("the others are gone", IN_TIME, async || examined(&url, &[]).await.0.len() == 1)
        .await;
    assert!(hint(&url, &[], "few_connections").await.contains("CONNECTION LIMIT"));
    limited(1).await;
    assert!(self::fix(&url, &[], "few_connections").await.contains("CONNECTION LIMIT"));
    limited(20).await;
    let read_only = "ALTER ROLE app SET default_transaction_read_only = on";
    client.batch_execute(read_only).await.expect("set");
    assert!(fix_of(&url).await.contains("default_transaction_read_only"));
    client.batch_execute("ALTER ROLE app RESET ALL").await.expect("set");
    let latin = "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'";
    client.batch_execute(latin).await.expect("made");
    let latin = admin.replace("/postgres?", "/latin?");
    assert_eq!(tool_at(&latin, &["postgres", "install"]).await.code, Some(0));
    assert!(hint(&latin, &[], "encoding").await.contains("UTF8"));
}

/// A server that is only in part like Redis: the URL of one that lacks some commands, tells no
/// rights, and answers so to a script that returns a text.
fn half_a_redis(lacks: &'static [&str], text: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("its port"));
    let serve = move |mut stream: TcpStream| {
        let mut request = [0; 65_536];
        while let Ok(read @ 1..) = stream.read(&mut request) {
            let request = String::from_utf8_lossy(&request[..read]);
            for command in request.split("\r\n*") {
                let mut words = command.split("\r\n").skip(1).skip(1).step_by(2);
                let (name, first) = (words.next().unwrap_or_default(), words.next());
                let reply = match (name, first) {
                    ("HELLO", _) => "%1\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
                    ("TIME", _) => "*2\r\n$1\r\n1\r\n$1\r\n1\r\n".to_owned(),
                    ("PING", _) => "+PONG\r\n".to_owned(),
                    ("EVAL", Some("return 'text'")) => text.to_owned(),
                    ("EVAL" | "EVALSHA", _) => "*3\r\n:1\r\n*0\r\n_\r\n".to_owned(),
                    ("COMMAND", _) => {
                        let known = words.map(|name| {
                            if lacks.contains(&name) {
                                return "_\r\n".to_owned();
                            }
                            format!("*1\r\n${}\r\n{name}\r\n", name.len())
                        });
                        let known: Vec<_> = known.collect();
                        format!("*{}\r\n{}", known.len(), known.concat())
                    }
                    _ => format!("-ERR unknown command '{name}'\r\n"),
                };
                let _ = stream.write_all(reply.as_bytes());
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    url
}

/// As fakeredis does: the text that a script returns arrives as a status, and it tells no rights.
#[tokio::test]
async fn a_server_that_is_half_a_redis_is_told_by_what_it_lacks() {
    let url = half_a_redis(&["getex"], "+text\r\n");
    assert_eq!(fix(&url, &[], "half_server").await, "use Redis 6.2 or later, or Valkey");
    let said = tool_at(&url, &["doctor", "order:1"]).await;
    let lacks = "lacks getex, scripts that return a text";
    assert!(said.shows(lacks) && said.shows("does not answer INFO"), "{said:?}");
    assert!(!said.shows("doctor KEY") && !said.shows("+info"), "{said:?}");
}

/// As some proxies: waiters poll behind them.
#[tokio::test]
async fn a_server_without_pushes_is_not_half_a_redis() {
    let url = half_a_redis(&["subscribe", "publish"], "$4\r\ntext\r\n");
    // Its clock stands still.
    let (found, _) = examined(&url, &[]).await;
    let codes: Vec<_> = found.iter().map(|(code, _)| &**code).collect();
    assert_eq!(codes, ["clock_rate", "no_pushes", "no_info", "clock_ahead"]);
}

/// The server does not tell it.
#[tokio::test]
async fn the_user_is_the_one_that_the_library_logs_in_with() {
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let socket = directory.path().join("redis.sock").to_string_lossy().into_owned();
    let server = Server::with(&["--unixsocket", &socket]);
    let rights = ["reset", "on", ">pass@word", "~*", "&*", "+@all", "-info", "-acl"];
    for user in ["a%b", "shop"] {
        server.admin().ask::<()>(&[&["ACL", "SETUSER", user], &rights[..]].concat());
    }
    for (url, name) in [
        (server.url_as("a%25b", "pass%40word"), "'a%b'"),
        (format!("redis+unix://{socket}?user=shop&pass=pass%40word"), "shop"),
    ] {
        let line = hint(&url, &[], "no_info").await;
        assert!(line.ends_with(&format!(" ACL SETUSER {name} +info")), "{line}");
        run(&line);
        assert!(is_well(&url, &[]).await);
    }
}

async fn fix_of(url: &str) -> String {
    fix(url, &[], "unreachable").await
}

/// As some hosted servers: they serve locks all the same.
#[tokio::test]
async fn a_server_that_answers_no_question_about_itself_serves_locks_and_is_examined() {
    let hidden = ["INFO", "CONFIG", "ACL"].map(|name| ["--rename-command", name, ""]);
    let server = Server::with(hidden.as_flattened());
    let locks = LockManager::connect(&server.url()).await.expect("it serves");
    hold(&locks, "order:1").await.release().await.expect("held");
    hint(&server.url(), &[], "no_info").await;
}
