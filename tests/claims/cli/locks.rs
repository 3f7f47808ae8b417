//! How locks and their waiters are shown.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_table_shows_holder_time_and_waiters() {
    let server = Server::start();
    let (desk, night) = (manager(&server, "desk-1").await, manager(&server, "night").await);
    let _order = hold(&desk, "order:42").await;
    let _report = hold(&night, "report:7").await;
    let one = wait_for(&night, "order:42").await;
    // Of another process than the holder: a process needs no place behind itself.
    let two = wait_for(&manager(&server, "desk-1").await, "order:42").await;
    server.admin().ask::<()>(&["SET", "session:1", "hush"]);

    let said = tool(&server, &["locks"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.out.lines().count(), 3, "{said:?}");
    assert_eq!(said.rows()[0], ["KEY", "HOLDER", "SINCE", "LEFT", "WAITERS"]);
    let [key, holder, _, "s", left, "s", "2"] = said.rows()[1][..] else { panic!("{said:?}") };
    assert_eq!((key, holder), ("order:42", "desk-1"));
    assert!((1.0..=60.0).contains(&left.parse::<f64>().unwrap()), "{said:?}");
    assert_eq!(said.rows()[2][..2], ["report:7", "night"]);

    let said = tool(&server, &["queue", "order:42"]).await;
    assert!(said.out.starts_with("`order:42` is held by desk-1 for another "), "{said:?}");
    assert_eq!(said.rows()[1], ["RANK", "WAITER", "CALLERS", "KEPT", "FOR"]);
    assert_eq!(said.rows()[2][..3], ["0", "night", "1"]);
    assert_eq!(said.rows()[3][..3], ["1", "desk-1", "1"]);

    let said = tool(&server, &["locks", "--all"]).await;
    let foreign = ["session:1", "a", "foreign", "client", "-", "-", "0"];
    assert_eq!(said.rows()[3], foreign, "{said:?}");
    assert!(!said.shows("hush"));
    one.abort();
    two.abort();
}

/// A process tells the server with its next request how many callers it has.
#[on(redis, postgres)]
async fn a_process_is_shown_with_the_number_of_its_callers(backend: &Backend) {
    let key = &*backend.key("order:42");
    let (desk, night) = (manager(backend, "desk").await, manager(backend, "night").await);
    let _order = hold(&desk, key).await;
    let first = wait_for(&night, key).await;
    let lock = || Lock::new(key).wait_forever().manager(&night);
    let more: Vec<_> = (0..2).map(|_| tokio::spawn(lock().acquire())).collect();
    eventually("three callers are shown", IN_TIME, async || {
        let queue = night.inspector().waiters(key, 10).await.expect("there").items;
        queue.len() == 1 && queue[0].callers == Some(3)
    })
    .await;
    let said = tool(backend, &["--json", "queue", key]).await.json();
    assert_eq!(said["queue"][0]["callers"], 3, "{said}");
    more.iter().for_each(JoinHandle::abort);
    first.abort();
}

#[on(redis, postgres)]
async fn a_json_document_has_the_same_content(backend: &Backend) {
    let key = &*backend.key("order:42");
    let desk = manager(backend, "desk-1").await;
    let _order = hold(&desk, key).await;
    let waiting = wait_for(&manager(backend, "night").await, key).await;
    let said = tool(backend, &["--json", "locks", &backend.key("order:*")]).await.json();
    assert_eq!((&said["truncated"], &said["skipped"]), (&json!(false), &json!([])));
    let lock = &said["locks"][0];
    assert_eq!((&lock["key"], &lock["holder"]), (&json!(key), &json!("desk-1")));
    assert_eq!(lock["waiters"], 1);
    assert!((1..=60_000).contains(&lock["left_ms"].as_u64().unwrap()), "{lock}");

    let said = tool(backend, &["queue", key, "--json"]).await.json();
    assert_eq!(said["lock"]["holder"], "desk-1");
    let first = &said["queue"][0];
    assert_eq!((&first["rank"], &first["waiter"]), (&json!(0), &json!("night")));
    assert!((1..=10_000).contains(&said["queue"][0]["left_ms"].as_u64().unwrap()), "{said}");
    let said = tool(backend, &["queue", &backend.key("free"), "--json"]).await.json();
    assert_eq!((&said["lock"], &said["queue"]), (&json!(null), &json!([])));
    waiting.abort();
}

#[on(redis, postgres)]
async fn a_pattern_chooses_and_what_is_left_out_is_said(backend: &Backend) {
    let [one, two, other] = ["order:1", "order:2", "report:1"].map(|key| backend.key(key));
    let (orders, all) = (&*backend.key("order:*"), &*backend.key("*"));
    let locks = manager(backend, "desk").await;
    let _one = hold(&locks, &one).await;
    let _two = hold(&locks, &two).await;
    let _other = hold(&locks, &other).await;
    let found = locks.inspector().locks(orders, 2).await.unwrap();
    let keys: Vec<_> = found.items.iter().map(|lock| lock.key.as_str()).collect();
    assert_eq!((keys.as_slice(), found.truncated), ([&*one, &two].as_slice(), false));
    let said = tool(backend, &["locks", all, "--limit", "2"]).await;
    assert_eq!(said.rows().len(), 4);
    assert!(said.out.contains("and more"), "{said:?}");
    let said = tool(backend, &["locks", &backend.key("nothing:*")]).await;
    assert_eq!((said.code, &*said.out), (Some(0), "nothing is held\n"));
}

/// The classes, ranges and escapes of Redis.
#[on(redis, postgres)]
async fn a_pattern_means_the_same_on_each_server(backend: &Backend) {
    let names =
        ["a", "a.c", "abc", "a\nc", "A", "a*c", "a]c", "a-c", "a^c", "a\\c", "a\0%c", "a%c"];
    let locks = manager(backend, "desk").await;
    let mut held = Vec::new();
    for name in names {
        held.push(hold(&locks, &backend.key(name)).await);
    }
    let sorted: &[&str] =
        &["a", "a\0%c", "a\nc", "a%c", "a*c", "a-c", "a.c", "a\\c", "a]c", "a^c", "abc"];
    for (pattern, want) in [
        ("a*", sorted),
        ("**c", &sorted[1..]),
        ("a.c", &["a.c"]),
        ("a|b", &[]),
        ("a?c", &["a\nc", "a%c", "a*c", "a-c", "a.c", "a\\c", "a]c", "a^c", "abc"]),
        ("a\\*c", &["a*c"]),
        ("a\\\\c", &["a\\c"]),
        ("a\\bc", &["abc"]),
        ("a\\", &[]),
        ("a[.b]c", &["a.c", "abc"]),
        ("a[a-z]c", &["abc"]),
        ("a[\\]^]c", &["a]c", "a^c"]),
        ("a[\\--.]c", &["a-c", "a.c"]),
        ("a[^a-z\\\\%]c", &["a\nc", "a*c", "a-c", "a.c", "a]c", "a^c"]),
        ("[A", &["A"]),
        ("(?i)A", &[]),
    ] {
        let seen = locks.inspector().locks(&backend.key(pattern), 100).await.expect("there");
        let seen: Vec<_> = seen.items.iter().map(|lock| lock.key.as_str().to_owned()).collect();
        let want: Vec<_> = want.iter().map(|name| backend.key(name)).collect();
        assert_eq!(seen, want, "{pattern}");
    }
    let strange = backend.key("a\0%c");
    let lock = locks.inspector().lock(&*strange).await.expect("there").expect("held");
    assert!(lock.key.as_str() == strange && locks.force_release(&lock).await.expect("there"));
}

/// Redis finds nothing, or something else than was meant.
#[on(postgres)]
async fn a_class_that_means_nothing_is_a_mistake(backend: &Backend) {
    let locks = manager(backend, "desk").await;
    let _held = hold(&locks, &backend.key("a")).await;
    for pattern in ["a[z-a]c", "a[]c", "a[^]c", "["] {
        let error = locks.inspector().locks(pattern, 100).await.expect_err("no pattern");
        let lockmacro_runtime::LockError::InvalidSetting { setting, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(*setting, "pattern", "{error}");
    }
}

/// It is what `queue` and `release` are given.
#[tokio::test]
async fn another_program_gets_the_whole_of_a_long_key() {
    let server = Server::start();
    let locks = manager(&server, "desk").await;
    let long = format!("order:{}", "x".repeat(500));
    let _held = hold(&locks, &long).await;
    let said = tool(&server, &["locks"]).await;
    assert!(said.out.contains(&format!("\n{long}  desk  ")), "{said:?}");
}

#[tokio::test]
async fn twenty_thousand_keys_are_looked_through_by_scan() {
    let server = Server::start();
    let mut admin = server.admin();
    let fill = "for n = 1, 20000 do
        local token = 'desk/' .. string.format('%032x', n)
        redis.call('SET', 'order:' .. n, n % 2 == 0 and token or 'foreign', 'PX', 60000)
    end";
    admin.ask::<()>(&["EVAL", fill, "0"]);
    admin.forget_calls();
    let said = tool_at(&server.url(), &["--json", "locks", "--limit", "20000"]).await.json();
    assert_eq!(said["locks"].as_array().unwrap().len(), 10_000);
    assert_eq!(said["truncated"], false);
    let names: Vec<_> = admin.calls().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["eval", "evalsha", "getrange", "pttl", "scan", "zcard"]);
    // A look at a few does not go through all.
    admin.forget_calls();
    let said = tool_at(&server.url(), &["--json", "locks", "--limit", "10"]).await.json();
    assert_eq!((said["locks"].as_array().unwrap().len(), &said["truncated"]), (10, &json!(true)));
    assert!(admin.calls().contains(&("scan".to_owned(), 1)));
}

#[on(redis, postgres)]
async fn holders_that_share_a_lock_are_counted_and_taken_away_together(backend: &Backend) {
    let key = &*backend.key("order:42");
    let (desk, night) = (manager(backend, "desk").await, manager(backend, "night").await);
    let report = |manager| Lock::new(key).ttl(LONG_TTL).shared().manager(manager);
    let early = report(&desk).acquire().await.expect("free");
    let _late = report(&night).acquire().await.expect("shared");
    let said = tool(backend, &["locks", key]).await.out;
    assert!(said.contains("night and 1 other"), "{said}");
    let said = tool(backend, &["--json", "locks", key]).await.json();
    assert_eq!(said["locks"][0]["sharing"], 2, "{said}");
    early.release().await.expect("still held");
    let lock = night.inspector().lock(key).await.expect("there").expect("one is left");
    assert_eq!((lock.sharing, lock.holder.owner.as_deref()), (Some(1), Some("night")));
    assert!(night.force_release(&lock).await.expect("there"));
    let exclusive = Lock::new(key).ttl(LONG_TTL).manager(&desk).acquire().await;
    exclusive.expect("nobody holds it").release().await.expect("still held");
}
