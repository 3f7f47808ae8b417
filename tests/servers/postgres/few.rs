//! Users and servers that have no room for all connections of a manager.

use futures::future::join_all;
use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};
use lockmacro_tests::{Postgres, eventually, within};
use tokio_postgres::Client;

use crate::refusals::with_user;
use crate::{
    NO_ROOM, TIMEOUT, is_renewed, is_waited_for, lock, log_warnings, manager, warnings, works,
};

const KEYS: usize = 24;

async fn connections(client: &Client, user: &str) -> i64 {
    let all = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1";
    client.query_one(all, &[&user]).await.expect("an answer").get(0)
}

/// All that locks need, with this many connections for the user.
async fn all_works_with(limit: usize) {
    log_warnings();
    let server = Postgres::start().await;
    let user = format!("few_{limit}");
    let url = with_user(&server, &user, &format!("CONNECTION LIMIT {limit}")).await;
    let (ours, theirs) = (within(TIMEOUT, &url).await, manager(&server.url()).await);
    let client = server.connect().await;
    let key = |nth| format!("few {limit}: {nth}");
    let renewed = Lock::new(key(KEYS)).ttl(ms(6_000)).renew().manager(&ours);
    let renewed = renewed.acquire().await.expect("free");
    let all = |locks: &LockManager| {
        let asking: Vec<_> = (0..KEYS).map(|nth| lock(locks, &key(nth)).acquire()).collect();
        join_all(asking)
    };
    let guards: Vec<_> = all(&ours).await.into_iter().map(|guard| guard.expect("free")).collect();
    // Released in the background.
    drop(guards);
    server.keeps_nothing(&key(1)).await;
    eventually("all are released", TEST_TIMEOUT, || async {
        let held = "SELECT FROM lm1.lease WHERE ends > clock_timestamp() AND starts_with(key, $1)";
        client.query(held, &[&format!("few {limit}: ")]).await.expect("an answer").len() == 1
    })
    .await;
    let guards: Vec<_> = all(&theirs).await.into_iter().map(|guard| guard.expect("free")).collect();
    let waiting: Vec<_> = (0..KEYS)
        .map(|nth| tokio::spawn(lock(&ours, &key(nth)).wait(LONG_TTL).acquire()))
        .collect();
    for nth in 0..KEYS {
        is_waited_for(&client, &key(nth)).await;
    }
    for guard in guards {
        guard.release().await.expect("still held");
    }
    for granted in join_all(waiting).await {
        granted.expect("no panic").expect("its turn").release().await.expect("still held");
    }
    is_renewed(&client, &key(KEYS)).await;
    renewed.release().await.expect("still held");
    assert_eq!(warnings(NO_ROOM, server.port()), 1, "one more was refused");
    server.keeps_nothing("few").await;
}

#[tokio::test]
async fn a_user_with_two_connections_has_all_its_locks() {
    all_works_with(2).await;
}

#[tokio::test]
async fn a_user_with_three_connections_has_all_its_locks() {
    all_works_with(3).await;
}

#[tokio::test]
async fn a_manager_gives_connections_up_where_there_is_no_room_and_opens_more_when_there_is() {
    let server = Postgres::start().await;
    let url = with_user(&server, "full", "CONNECTION LIMIT 2").await;
    let (ours, client) = (within(TIMEOUT, &url).await, server.connect().await);
    for nth in 0..KEYS {
        works(&ours, &format!("full: {nth}")).await;
    }
    eventually("others have room", TEST_TIMEOUT, || async {
        connections(&client, "full").await == 1
    })
    .await;
    server.execute("ALTER ROLE full CONNECTION LIMIT -1").await;
    eventually("it uses more again", LONG_TTL, || async {
        for nth in 0..KEYS {
            works(&ours, &format!("full: {nth}")).await;
        }
        connections(&client, "full").await > 2
    })
    .await;
    server.keeps_nothing("full").await;
}
