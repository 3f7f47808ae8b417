//! The notes of holders about themselves, and the keys of managers with a prefix.

use std::time::SystemTime;

use super::*;

#[tokio::test]
async fn a_holders_note_and_since_when_it_holds_are_shown() {
    let server = Server::start();
    let desk = manager(&server, "desk-1").await;
    let lock = Lock::new("order:42").ttl(LONG_TTL).manager(&desk);
    let noted = lock.clone().holder_note("Ann \u{202e}Example");
    let _held = noted.acquire().await.expect("it is free");
    let other = manager(&server, "desk-1").await;
    let waits = lock.manager(&other).wait(LONG_TTL).holder_note("Bob");
    let waiting = tokio::spawn(waits.acquire());
    eventually("it is in the queue", IN_TIME, async || queue_length(&desk, "order:42").await == 1)
        .await;

    let said = tool(&server, &["locks"]).await;
    assert!(
        said.rows()[1].join(" ").starts_with("order:42 desk-1 (Ann \\u{202e}Example) "),
        "{said:?}"
    );
    let said = tool(&server, &["queue", "order:42"]).await;
    assert!(said.out.contains("is held by desk-1 (Ann \\u{202e}Example) for another"), "{said:?}");
    assert_eq!(said.rows()[2][..3], ["0", "desk-1", "(Bob)"]);

    let said = tool(&server, &["--json", "queue", "order:42"]).await.json();
    let lock = &said["lock"];
    let note = "Ann \\u{202e}Example";
    assert_eq!((&lock["holder"], &lock["note"]), (&"desk-1".into(), &note.into()));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let since = lock["since"].as_u64().expect("a number");
    assert!(since <= now.as_secs() && since + 600 > now.as_secs(), "{lock}");
    assert_eq!(
        (&said["queue"][0]["waiter"], &said["queue"][0]["note"]),
        (&"desk-1".into(), &"Bob".into())
    );

    // A holder with a note is taken away as any other.
    let said = tool(&server, &["release", "order:42", "--force", "--yes"]).await;
    assert_eq!(said.out, "`order:42` was taken away from desk-1\n");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("it is its own");
}

#[tokio::test]
async fn keys_are_shown_and_named_with_their_prefix() {
    let server = Server::start();
    let url = format!("{}?key_prefix=shop%3A", server.url());
    let shop = LockManager::connect(&url).await.expect("it is there");
    let guard = hold(&shop, "order:42").await;
    let found = shop.inspector().lock(guard.key()).await.expect("answered").expect("held");
    assert_eq!(&found.key, guard.key());
    assert!(Lock::new(&found.key).manager(&shop).acquire().await.expect_err("held").is_busy());
    // Also by the program's own URL.
    for url in [server.url(), url] {
        let said = tool_at(&url, &["locks", "shop:*"]).await;
        assert_eq!(said.rows()[1][0], "shop:order:42", "{said:?}");
        let said = tool_at(&url, &["queue", "shop:order:42"]).await;
        assert!(said.out.starts_with("`shop:order:42` is held by "), "{said:?}");
    }
    guard.release().await.expect("still held");
}
