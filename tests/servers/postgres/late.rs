//! Requests that reach the server when nobody waits for their answer any more.

use std::time::Duration;

use lockmacro_tests::{Fault, Proxy, is_in_time, within};
use tokio_postgres::Client;

use crate::{holder, lock, manager, shared, works};

/// The time of an answer is a quarter of it.
const PATIENT: Duration = Duration::from_secs(4);

/// A token with this number.
fn token(nth: u8) -> String {
    format!("late/{nth:032x}")
}

/// The error code of a statement that has to fail.
async fn refused(client: &Client, statement: &str) -> String {
    let error = client.simple_query(statement).await.expect_err(statement);
    error.code().expect("an error of the server").code().to_owned()
}

/// In a proxy or in a buffer, a request may outlive its connection.
#[tokio::test]
async fn a_request_that_arrives_after_the_release_of_its_lock_takes_nothing() {
    let server = shared().await;
    let _ = manager(&server.url()).await;
    let proxy = Proxy::to(server.port());
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let (ours, client) = (within(PATIENT, &url).await, server.connect().await);
    // Now the clock of the server is known.
    works(&ours, "late").await;
    proxy.on_next_with("lm1.ask(", Fault::HoldLastCommand(PATIENT / 2));
    let guard = lock(&ours, "late").acquire().await.expect("by a second request");
    guard.release().await.expect("still held");
    assert_eq!(holder(&client, "late").await, None);
    proxy.held_commands_arrive().await;
    // Sooner than the background releases the lock once more, as its request may have been late.
    assert_eq!(holder(&client, "late").await, None, "nobody would release it");
    server.keeps_nothing("late").await;
}

#[tokio::test]
async fn a_request_is_refused_after_its_end_by_the_servers_clock_and_does_nothing() {
    let server = shared().await;
    let _ = manager(&server.url()).await;
    let client = server.connect().await;
    let ask = |id: &str, not_after: &str| {
        format!(
            "SELECT nth, at FROM lm1.ask('{{ended}}', '{}', 60000, '{{1}}', false, {id}, 'nowhere', 1,
                10000, {not_after})",
            token(1)
        )
    };
    let now = "lm1.micros(clock_timestamp())";
    for id in ["NULL", "'00000000000000000001'"] {
        let row = client.query_one(&ask(id, &format!("{now} - 1")), &[]).await.expect("an answer");
        assert_eq!(row.get::<_, Option<i32>>(0), Some(-1));
        assert!(row.get::<_, i64>(1) > 1_700_000_000_000_000, "the time for the next request");
        server.keeps_nothing("ended").await;
    }
    let row = client.query_one(&ask("NULL", &format!("{now} + 1000000")), &[]).await;
    assert_eq!(row.expect("an answer").get::<_, Option<i32>>(0), None, "in time");
    let release = format!("SELECT lm1.release('{{ended}}', '{}', 0)", token(1));
    client.simple_query(&release).await.expect("released");
    server.keeps_nothing("ended").await;
}

/// Else its check of the fence would be refused, which it has and does not know to be replaced.
#[tokio::test]
async fn a_holder_keeps_its_fences_when_its_request_arrives_again() {
    let server = shared().await;
    let _ = manager(&server.url()).await;
    let client = server.connect().await;
    let ask = async |key: &str, nth, holders, fenced| {
        let asks = format!(
            "SELECT fences[1] FROM lm1.ask('{{{key}}}', '{}', 60000, '{{{holders}}}', {fenced}, NULL,
                NULL, 1, 0, NULL)",
            token(nth)
        );
        let row = client.query_one(&asks, &[]).await.expect("an answer");
        row.get::<_, Option<String>>(0).expect("granted")
    };
    for (key, holders) in
        [("kept fences", 1), ("kept fences: shared", 0), ("kept fences: permits", 3)]
    {
        let fences = ask(key, 1, holders, true).await;
        assert!(!fences.is_empty());
        if holders != 1 {
            // It has larger ones.
            assert_ne!(ask(key, 2, holders, true).await, fences);
        }
        assert_eq!(ask(key, 1, holders, true).await, fences, "{key}");
        assert_eq!(ask(key, 1, holders, false).await, "", "{key}");
        assert_eq!(ask(key, 1, holders, true).await, fences, "{key}");
        for nth in [1, 2] {
            let release = format!("SELECT lm1.release('{{{key}}}', '{}', 0)", token(nth));
            client.simple_query(&release).await.expect("released");
        }
    }
    // One that has none yet gets some.
    assert_eq!(ask("kept fences: none", 1, 1, false).await, "");
    let fences = ask("kept fences: none", 1, 1, true).await;
    let fence = fences.split('-').next().and_then(|first| first.parse().ok()).expect("a number");
    let check = "CALL lm1.check_fence($1, $2)";
    assert!(is_in_time(&client, check, "kept fences: none", fence).await);
    let release = format!("SELECT lm1.release('{{kept fences: none}}', '{}', 0)", token(1));
    client.simple_query(&release).await.expect("released");
    server.keeps_nothing("kept fences").await;
}

/// A lock of nobody would be granted, and every list of locks would fail.
#[tokio::test]
async fn arguments_that_are_null_or_too_few_are_refused() {
    let server = shared().await;
    let _ = manager(&server.url()).await;
    let client = server.connect().await;
    let token = token(1);
    for call in [
        "ask(ARRAY['null'], NULL, 60000, '{1}', false, NULL, NULL, 1, 0, NULL)".to_owned(),
        format!("ask(ARRAY['null', NULL], '{token}', 60000, '{{1,1}}', false, NULL, NULL, 1, 0)"),
        format!("ask(NULL, '{token}', 60000, '{{1}}', false, NULL, NULL, 1, 0)"),
        format!("ask(ARRAY['null'], '{token}', NULL, '{{1}}', false, NULL, NULL, 1, 0)"),
        format!("ask(ARRAY['null'], '{token}', 60000, NULL, false, NULL, NULL, 1, 0)"),
        format!("ask(ARRAY['null'], '{token}', 60000, '{{NULL}}', false, NULL, NULL, 1, 0)"),
        format!("ask(ARRAY['null'], '{token}', 60000, '{{1}}', NULL, NULL, NULL, 1, 0)"),
        "release(ARRAY['null'], NULL, 0)".to_owned(),
        format!("release(ARRAY['null'], '{token}', NULL)"),
        format!("release(NULL, '{token}', 0)"),
        format!("release(ARRAY[NULL], '{token}', 0)"),
        "renew(ARRAY['null'], ARRAY[NULL], '{60000}')".to_owned(),
        format!("renew(ARRAY['null'], ARRAY['{token}'], '{{NULL}}')"),
        format!("renew(NULL, ARRAY['{token}'], '{{1}}')"),
        format!("keep(NULL, '{token}', 'value', 1000)"),
        "keep('null', NULL, 'value', 1000)".to_owned(),
    ] {
        assert_eq!(refused(&client, &format!("SELECT lm1.{call}")).await, "22004", "{call}");
    }
    for call in [
        format!("ask(ARRAY['null'], '{token}', 60000, '{{1,1}}', false, NULL, NULL, 1, 0)"),
        format!("renew(ARRAY['null', 'other'], ARRAY['{token}', '{token}'], '{{60000}}')"),
        format!("renew(ARRAY['null', 'other'], ARRAY['{token}'], '{{60000,60000}}')"),
        format!("stay(ARRAY['null', 'other'], ARRAY['{token}'], 16, 10000)"),
    ] {
        assert_eq!(refused(&client, &format!("SELECT lm1.{call}")).await, "22023", "{call}");
    }
    server.keeps_nothing("null").await;
}
