//! The values that holders keep for others: users' data, which must not stay.

use lockmacro_tests::eventually;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};
use tokio_postgres::Client;

use crate::{Locked, lock, manager, shared};

async fn is_there(client: &Client, key: &str) -> bool {
    let value = "SELECT FROM lm1.value WHERE key = $1";
    !client.query(value, &[&key]).await.expect("an answer").is_empty()
}

#[tokio::test]
async fn a_value_is_removed_soon_after_its_time() {
    let server = shared().await;
    let ours = manager(&server.url()).await;
    let client = server.connect().await;
    // The second one is kept while the first is waited for, and by a task of its own after that.
    for _ in 0..2 {
        let kept = lock(&ours, "value").reuse(ms(700)).run(async { Locked::Ok(7) });
        assert_eq!(kept.await, Ok(7));
        assert!(is_there(&client, "value").await);
        eventually("it is removed", TEST_TIMEOUT, || async { !is_there(&client, "value").await })
            .await;
    }
}

#[tokio::test]
async fn the_value_of_another_function_stays_when_one_is_removed() {
    let server = shared().await;
    let ours = manager(&server.url()).await;
    let client = server.connect().await;
    for (name, keep) in [("short", ms(1)), ("long", LONG_TTL)] {
        let kept = lock(&ours, "two").ttl(ms(200)).name(name).reuse(keep);
        assert_eq!(kept.run(async { Locked::Ok(7) }).await, Ok(7));
    }
    let names = async || {
        let names = "SELECT name FROM lm1.value WHERE key = 'two'";
        let rows = client.query(names, &[]).await.expect("an answer");
        rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
    };
    eventually("it is removed", TEST_TIMEOUT, async || names().await.len() == 1).await;
    assert_eq!(names().await, ["long"]);
    client.execute("DELETE FROM lm1.value WHERE key = 'two'", &[]).await.expect("gone");
}

/// That process may have been the only one that keeps values.
#[tokio::test]
async fn a_value_of_a_process_that_has_ended_is_removed_with_the_rows_that_nobody_uses() {
    let server = shared().await;
    let _ = manager(&server.url()).await;
    let client = server.connect().await;
    let left = "INSERT INTO lm1.value VALUES ('left value', '7', clock_timestamp()),
            ('kept value', '8', clock_timestamp() + interval '1 h');
        SELECT lm1.tidy(60000, 'y')";
    client.batch_execute(left).await.expect("tidied");
    assert!(!is_there(&client, "left value").await);
    assert!(is_there(&client, "kept value").await);
    client.batch_execute("DELETE FROM lm1.value WHERE key = 'kept value'").await.expect("gone");
}
