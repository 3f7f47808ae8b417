//! Keys that are not what they should be.

use serde_json::json;

use super::*;

#[tokio::test]
async fn odd_keys_are_reported_and_skipped() {
    let server = Server::start();
    let locks = manager(&server, "desk").await;
    let _held = hold(&locks, "order:1").await;
    let mut admin = server.admin();
    let long = "k".repeat(2_000);
    admin.ask::<()>(&["RPUSH", "order:list", "x"]);
    admin.ask::<()>(&["SET", "lm1:wq:{order:1}", "no line"]);
    admin.ask::<()>(&["SET", &long, "x"]);
    admin.ask::<()>(&["SET", "", "x"]);
    admin.ask::<()>(&["SET", "evil\u{1b}[2J\nkey", &format!("a\u{7}b/{:032x}", 1)]);
    admin.ask::<()>(&["EVAL", r"return redis.call('SET', '\255\254', 'x')", "0"]);

    let said = tool(&server, &["locks", "--json"]).await.json();
    let keys: Vec<_> = said["locks"].as_array().unwrap().iter().map(|lock| &lock["key"]).collect();
    assert_eq!(keys, ["evil\u{1b}[2J\nkey", "order:1"]);
    assert_eq!(said["locks"][1]["waiters"], json!(null));
    let odd: Vec<_> = said["skipped"].as_array().unwrap().iter().map(|odd| &odd["key"]).collect();
    assert_eq!(odd.len(), 4, "{odd:?}");
    for key in [&*long, "", "order:1", "\u{fffd}\u{fffd}"] {
        assert!(odd.contains(&&json!(key)), "{key}: {odd:?}");
    }
    let said = tool(&server, &["locks"]).await;
    assert!(!said.out.contains(['\u{1b}', '\u{7}']), "{said:?}");
    assert!(said.out.contains("evil\\u{1b}[2J\\nkey  a\\u{7}b"), "{said:?}");
    assert!(said.out.contains("! order:1: its queue key holds another type of value"), "{said:?}");

    let said = tool(&server, &["why", "order:1"]).await;
    assert!(said.shows("is held by desk") && said.shows("cannot be seen"), "{said:?}");

    for words in [["queue", "order:list"], ["queue", "order:1"]] {
        let said = tool(&server, &words).await;
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains("is not a lock"), "{said:?}");
    }
}

#[tokio::test]
async fn an_odd_entry_in_the_queue_is_shown_as_one() {
    let server = Server::start();
    let locks = manager(&server, "desk").await;
    let mut admin = server.admin();
    admin.ask::<()>(&["ZADD", "lm1:wq:{order:1}", "1", "stranger", "2", "web/0a"]);
    admin.ask::<()>(&["HSET", "lm1:ww:{order:1}", "stranger", "no record"]);
    let found = locks.inspector().waiters("order:1", 10).await.unwrap().items;
    assert_eq!(found.len(), 2);
    assert!(
        found.iter().all(|waiter| waiter.owner.is_none() && waiter.left.is_none()),
        "{found:?}"
    );
    let said = tool(&server, &["queue", "order:1"]).await;
    assert_eq!(said.rows()[2..], [["0", "?", "?", "-"], ["1", "?", "?", "-"]]);
    assert!(!said.shows("stranger"));
}

#[tokio::test]
async fn calls_that_are_something_else_do_not_hide_the_others() {
    let server = Server::start();
    let mut admin = server.admin();
    for function in ["shop::audit", "broken", "evil\u{1b}"] {
        admin.ask::<()>(&["HSET", &format!("lm1:jobs:{function}"), "id", "[1]"]);
    }
    admin.ask::<()>(&["ZADD", "lm1:wx:{lm1:jobs:shop::audit}", "1", "id"]);
    admin.ask::<()>(&["SET", "lm1:wd:{lm1:jobs:broken}", "no line"]);
    admin.ask::<()>(&["SET", "lm1:jobs:text", "no calls"]);
    let said = tool(&server, &["jobs"]).await;
    assert_eq!(said.rows()[2], ["shop::audit", "0", "0", "1"], "{said:?}");
    assert!(said.out.contains("! broken: a key of its calls has another type"), "{said:?}");
    assert!(!said.out.contains('\u{1b}') && !said.out.contains("text"), "{said:?}");
    let said = tool(&server, &["jobs", "--json"]).await.json();
    assert_eq!(said["broken"], json!(["broken"]));
    assert_eq!(said["functions"].as_array().unwrap().len(), 2);
}
