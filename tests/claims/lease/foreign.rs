//! Keys that somebody else deletes or overwrites while they are held.

use std::time::{Duration, Instant};

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, LossCause};
use lockmacro_tests::{Admin, Server, in_time};

use crate::{Locked, SOON, cause, connect, lock, ms, outlast, renewed, served};

const KEY: &str = "order:42";
const TTL: Duration = Duration::from_secs(6);

async fn held() -> (Server, Admin, LockManager, LockGuard) {
    let (server, manager) = served().await;
    let guard = renewed(&manager, KEY, TTL).acquire().await.expect("free");
    let admin = server.admin();
    (server, admin, manager, guard)
}

/// A change of a key by another client.
const DEEDS: [&[&str]; 4] = [
    &["DEL", KEY],
    &["SET", KEY, "somebody", "PX", "60000"],
    &["EVAL", "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'a list')", "1", KEY],
    &["RENAME", KEY, "elsewhere"],
];

#[tokio::test]
async fn a_key_taken_away_is_lost_within_one_renewal() {
    let each = DEEDS.map(|deed| async move {
        let (_server, mut admin, _manager, guard) = held().await;
        let start = Instant::now();
        admin.ask::<redis::Value>(deed);
        let lost = in_time(guard.lost()).await;
        assert_eq!(lost.cause(), LossCause::Taken, "{deed:?}");
        // It is due after a third of the ttl and a tenth of that, and the next one after two
        // thirds.
        assert!(start.elapsed() < TTL * 2 / 3, "{deed:?}: {:?}", start.elapsed());
        assert!(!guard.is_held() && guard.check().is_err());
        assert_eq!(cause(guard.release().await), LossCause::Taken);
    });
    futures::future::join_all(each).await;
}

#[tokio::test]
async fn a_body_whose_key_is_taken_away_is_stopped_within_one_renewal() {
    let (server, manager) = served().await;
    let mut admin = server.admin();
    let start = Instant::now();
    let result = renewed(&manager, KEY, TTL).run(async {
        admin.ask::<()>(&["SET", KEY, "somebody", "PX", "60000"]);
        std::future::pending::<Locked<()>>().await
    });
    assert_eq!(cause(in_time(result).await), LossCause::Taken);
    assert!(start.elapsed() < TTL * 2 / 3, "{:?}", start.elapsed());
    assert_eq!(admin.get(KEY).as_deref(), Some("somebody"), "it is theirs to keep");
}

#[tokio::test]
async fn an_extension_never_takes_a_lock_that_is_gone() {
    for deed in DEEDS {
        let server = Server::start();
        let mut admin = server.admin();
        let manager = connect(&server.url()).await;
        let guard = lock(&manager, KEY).acquire().await.expect("free");
        admin.ask::<redis::Value>(deed);
        let before: Option<redis::Value> = admin.send(&["DUMP", KEY]).ok();
        for _ in 0..3 {
            assert_eq!(cause(guard.extend(SOON).await), LossCause::Taken, "{deed:?}");
            assert!(!guard.is_held());
        }
        assert_eq!(admin.send(&["DUMP", KEY]).ok(), before, "{deed:?}");
        let mut left: i64 = admin.ask(&["PTTL", KEY]);
        drop(guard);
        // The drop touches nothing either.
        lock(&manager, "marker").run(async { Locked::Ok(()) }).await.expect("free");
        assert_eq!(admin.send(&["DUMP", KEY]).ok(), before, "{deed:?}");
        left -= admin.ask::<i64>(&["PTTL", KEY]);
        assert!((0..30_000).contains(&left), "{deed:?}: {left}");
    }
}

#[tokio::test]
async fn a_lost_key_that_is_put_back_does_not_revive_the_guard() {
    let (_server, mut admin, manager, guard) = held().await;
    let token = admin.get(KEY).expect("held");
    admin.ask::<()>(&["DEL", KEY]);
    in_time(guard.lost()).await;
    admin.ask::<()>(&["SET", KEY, &token, "PX", "60000"]);
    for _ in 0..3 {
        assert_eq!(cause(guard.extend(SOON).await), LossCause::Taken);
        assert!(!guard.is_held() && guard.remaining().is_zero());
        outlast(TTL / 6).await;
    }
    let body = guard.run(async { Locked::Ok(7) }).await;
    assert_eq!(cause(body), LossCause::Taken);
    // The value that was put back is removed all the same, because it is the guard's own.
    assert_eq!(admin.get(KEY), None);
    lock(&manager, KEY).run(async { Locked::Ok(()) }).await.expect("free");
}

#[tokio::test]
async fn an_expired_lease_is_not_revived_by_a_key_that_is_still_there() {
    let (server, manager) = served().await;
    let guard = Lock::new(KEY).ttl(ms(100)).manager(&manager).acquire().await.expect("free");
    let mut admin = server.admin();
    // An operator means well.
    admin.ask::<()>(&["PEXPIRE", KEY, "60000"]);
    assert_eq!(in_time(guard.lost()).await.cause(), LossCause::Expired);
    let extended = guard.extend(SOON).await;
    assert!(matches!(&extended, Err(LockError::Lost(_))), "{extended:?}");
    assert!(!guard.is_held());
    assert!(admin.ttl(KEY).expect("not taken away yet") > SOON, "it was not asked again");
    guard.release().await.expect_err("lost");
    assert_eq!(admin.get(KEY), None);
}
