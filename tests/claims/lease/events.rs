//! The `tracing` events of locks.

use lockmacro_runtime::{Lock, LockKey, LockManager, LossCause, OnLost};
use lockmacro_tests::{Server, eventually, in_time, log};

use crate::{Locked, SOON, ms, served, until_lost, within};

fn start_log() {
    log::start_of(|line| line.contains(" key=events:") && line.contains(" message="));
}

/// The events of a key. A renewal is logged on a thread of the manager's own, so the log is that of
/// the whole process; tests differ by key.
fn logged(key: &str) -> Vec<String> {
    let field = format!("key=events:{key}");
    log::lines(|line| line.split(' ').any(|word| word == field))
}

/// Whether an event was logged at this level with this message.
fn is_logged(key: &str, event: &str) -> bool {
    logged(key).iter().any(|line| is(line, event))
}

/// As "DEBUG lock busy".
fn is(line: &str, event: &str) -> bool {
    let (level, message) = event.split_once(' ').expect("a level and a message");
    line.starts_with(&format!("{level} message={message} "))
}

fn named(manager: &LockManager, key: &str) -> Lock {
    Lock::new(LockKey::template("events:<id>").literal("events:").value(&key))
        .name("audit_order")
        .manager(manager)
}

#[tokio::test]
async fn acquired_and_busy_locks_are_logged_with_name_and_template() {
    start_log();
    let manager = LockManager::isolated_memory();
    let guard = named(&manager, "acquired").acquire().await.expect("free");
    assert!(named(&manager, "acquired").acquire().await.is_err());
    guard.release().await.expect("ours");
    let [acquired, busy] = &logged("acquired")[..] else { panic!("{:?}", logged("acquired")) };
    assert!(is(acquired, "DEBUG lock acquired") && is(busy, "DEBUG lock busy"));
    for event in [acquired, busy] {
        for field in [" name=audit_order", " template=\"events:<id>\"", " waited="] {
            assert!(event.contains(field), "{event}");
        }
    }
    assert!(busy.contains("is locked by"), "{busy}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_logged() {
    start_log();
    let manager = LockManager::isolated_memory();
    let guard = named(&manager, "renewed").ttl(ms(1_200)).renew().acquire().await.expect("free");
    let renewed = async || is_logged("renewed", "TRACE lock renewed");
    eventually("a renewal is logged", SOON, renewed).await;
    guard.release().await.expect("ours");
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_once_with_its_cause_under_every_policy() {
    start_log();
    let manager = LockManager::isolated_memory();
    for on_lost in [OnLost::Cancel, OnLost::Error, OnLost::Finish] {
        let key = format!("lost-{on_lost:?}");
        let lock = named(&manager, &key).ttl(ms(60)).on_lost(on_lost);
        let body = lock.run(async {
            until_lost().await;
            Locked::Ok(())
        });
        let _ = body.await;
        let mut lost = logged(&key);
        lost.retain(|event| is(event, "WARN lock lost"));
        assert_eq!(lost.len(), 1, "{on_lost:?}");
        assert!(lost[0].contains(&format!(" cause={}", LossCause::Expired)), "{lost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_guard_is_reported_too() {
    start_log();
    let manager = LockManager::isolated_memory();
    for released in [true, false] {
        let key = format!("guard-{released}");
        let guard = named(&manager, &key).ttl(ms(60)).acquire().await.expect("free");
        guard.lost().await;
        if released {
            guard.release().await.expect_err("lost");
        } else {
            drop(guard);
        }
        eventually("the loss is logged", SOON, async || is_logged(&key, "WARN lock lost")).await;
    }
}

#[tokio::test]
async fn a_lock_taken_away_before_its_release_is_reported() {
    start_log();
    let (server, manager) = served().await;
    let value = in_time(named(&manager, "taken").run(async {
        server.admin().ask::<()>(&["DEL", "events:taken"]);
        Locked::Ok(7)
    }));
    assert_eq!(value.await, Ok(7), "nothing had said so while the body ran");
    let last = logged("taken").pop().expect("logged");
    assert!(is(&last, "WARN lock was taken away before its release"), "{last}");
}

#[tokio::test]
async fn a_release_without_an_answer_is_reported() {
    start_log();
    let mut server = Server::start();
    let manager = within(ms(1_500), &server.url()).await;
    let value = in_time(named(&manager, "unconfirmed").ttl(SOON).run(async {
        server.kill();
        Locked::Ok(7)
    }));
    assert_eq!(value.await, Ok(7));
    // At WARN, unless the loss of the server was logged meanwhile.
    let noted = ["WARN lock is still being released", "DEBUG lock is still being released"];
    assert!(noted.iter().any(|event| is_logged("unconfirmed", event)));
}

#[tokio::test]
async fn entering_again_is_not_logged() {
    start_log();
    let manager = LockManager::isolated_memory();
    let inner = || named(&manager, "inner").run(async { Locked::Ok(7) });
    named(&manager, "inner").run(async { inner().await }).await.expect("free");
    let [acquired] = &logged("inner")[..] else { panic!("{:?}", logged("inner")) };
    assert!(is(acquired, "DEBUG lock acquired"));
}
