//! The error of a refused caller: the holder, and when to ask again.

use std::time::{Duration, SystemTime};

use lockmacro_runtime::{Lock, LockError, LockKey, LockManager};
use lockmacro_tests::{Backend, on};

use crate::{LONG_TTL, lock, ms};

/// A lock of the same template as others of the test.
fn job(manager: &LockManager, backend: &Backend, id: u64) -> Lock {
    let template = LockKey::template("job:<id>").literal(&backend.key("job:"));
    Lock::new(template.value(&id)).ttl(LONG_TTL * 5).manager(manager)
}

async fn refused(lock: Lock) -> LockError {
    let error = lock.acquire().await.expect_err("it is held");
    assert!(error.is_busy(), "{error:?}");
    error
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_refused_caller_may_retry_when_such_locks_are_usually_released(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let held = job(&theirs, backend, 0).acquire().await.expect("free");
    let unseen = refused(job(&ours, backend, 0)).await;
    assert_eq!(unseen.retry_after(), Some(ms(5_000)), "{unseen}");
    // How long they are held is seen at other keys of the template.
    for id in 1..6 {
        let guard = job(&ours, backend, id).acquire().await.expect("free");
        tokio::time::sleep(ms(20)).await;
        guard.release().await.expect("still held");
    }
    let seen = refused(job(&ours, backend, 0)).await;
    // A body of 20 ms on the most loaded machine.
    assert!(seen.retry_after() < Some(ms(5_000)), "{seen}");
    assert!(seen.retry_after_secs() >= Some(1), "{seen}");
    assert!(seen.holder().free_within.is_some_and(|left| left > LONG_TTL * 4), "{seen}");
    // A waiter has those before it, too.
    let waited = refused(job(&ours, backend, 0).wait(ms(1))).await;
    assert!(waited.retry_after() < Some(ms(5_000)), "{waited}");
    held.release().await.expect("still held");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_lock_that_stays_longer_than_its_body_counts_as_long_as_it_stays(backend: &Backend) {
    let manager = backend.manager().await;
    let stays = Duration::from_secs(12);
    let lock = job(&manager, backend, 1).min_hold(stays);
    lock.acquire().await.expect("free").release().await.expect("still held");
    let error = refused(lock).await;
    let retry = error.retry_after().expect("busy");
    assert!(ms(5_000) < retry && retry <= stays, "{error}");
    // Nobody is to look for a body that is stuck.
    assert!(error.holder().is_kept, "{error:?}");
    assert!(error.to_string().contains(" is kept by the `min_hold` of "), "{error}");
    for mut admin in backend.admins() {
        admin.keys().iter().for_each(|key| admin.ask::<()>(&["DEL", key]));
    }
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn nobody_has_to_retry_later_than_the_lease_ends(backend: &Backend) {
    let manager = backend.manager_from(builder().retry_after(ms(10)..=LONG_TTL)).await;
    let brief = job(&manager, backend, 1).ttl(ms(4_000));
    let guard = brief.acquire().await.expect("free");
    let error = refused(brief).await;
    assert_eq!(error.retry_after(), error.holder().free_within, "{error}");
    guard.release().await.ok();
    let bad = builder().retry_after(LONG_TTL..=ms(1)).isolated_memory();
    let error = lock(&bad, "x").acquire().await.expect_err("refused");
    assert!(matches!(error, LockError::InvalidSetting { setting: "retry_after", .. }), "{error:?}");
}

fn builder() -> lockmacro_runtime::LockManagerBuilder {
    LockManager::builder().timeout(LONG_TTL)
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_holders_note_is_shown_to_callers_that_find_it_busy(backend: &Backend) {
    let ours = backend.manager_from(builder().label("web-3")).await;
    let key = backend.key("order:42");
    let noted = lock(&ours, &key).name("audit").holder_note("Ann Example, 订单台");
    // A waiter writes its note as well, and it is shown when its turn has come.
    for noted in [noted.clone(), noted.wait(LONG_TTL)] {
        let guard = noted.acquire().await.expect("free");
        let error = refused(lock(&backend.manager().await, &key)).await;
        assert_eq!(error.holder().note.as_deref(), Some("Ann Example, 订单台"));
        assert_eq!(error.holder().owner.as_deref(), Some("web-3:audit"));
        assert!(error.to_string().contains("web-3:audit (Ann Example, 订单台)"), "{error}");
        guard.release().await.expect("still held");
    }
    let guard = lock(&ours, &key).name("audit").acquire().await.expect("free");
    assert_eq!(refused(lock(&ours, &key)).await.holder().note, None);
    guard.release().await.expect("still held");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_note_is_no_part_of_label_or_token(backend: &Backend) {
    let ours = backend.manager_from(builder().label("web-3")).await;
    let key = backend.key("order:42");
    let hex = "0123456789abcdef".repeat(2);
    let long = "x".repeat(200);
    for (note, shown) in [
        (&*format!("/{hex}"), Some(format!("/{hex}"))),
        ("a - b / c", Some("a - b / c".to_owned())),
        ("-", Some("-".to_owned())),
        ("\u{1b}[31mred\r\nline\0", Some("[31mred  line".to_owned())),
        ("", None),
        (&*long, Some("x".repeat(64))),
        (&*"订".repeat(40), Some("订".repeat(21))),
    ] {
        let guard = lock(&ours, &key).holder_note(note).acquire().await.expect("free");
        let error = refused(lock(&ours, &key)).await;
        assert_eq!(
            (error.holder().owner.as_deref(), error.holder().note.as_deref()),
            (Some("web-3"), shown.as_deref())
        );
        assert!(!error.to_string().contains(char::is_control), "{error:?}");
        assert!(guard.is_held());
        guard.extend(LONG_TTL * 2).await.expect("it is ours");
        guard.release().await.expect("it is ours");
    }
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn the_holder_stays_beside_a_message(backend: &Backend) {
    let ours = backend.manager_from(builder().label("web-3")).await;
    let key = backend.key("order:42");
    let guard = lock(&ours, &key).name("audit").acquire().await.expect("free");
    for wait in [Duration::ZERO, ms(1)] {
        let text = "order 42 is being processed";
        let error = refused(lock(&ours, &key).message(text).wait(wait)).await;
        assert_eq!(error.message(), Some(text));
        let text_with_holder = format!("{text} (locked by web-3:audit: try again in 5s)");
        assert_eq!(error.to_string(), text_with_holder);
    }
    guard.release().await.expect("still held");
}

#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_holder_shows_when_it_asked_and_if_it_did_not_wait_since_when_it_holds(
    backend: &Backend,
) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let before = SystemTime::now() - Duration::from_secs(1);
    let guard = lock(&manager, &key).acquire().await.expect("free");
    let error = refused(lock(&manager, &key)).await;
    let since = error.holder().since.expect("it did not wait");
    assert!(before <= since && since <= SystemTime::now(), "{since:?}");
    guard.release().await.expect("still held");
    // A waiter's value is older than its grant.
    let guard = lock(&manager, &key).wait(LONG_TTL).acquire().await.expect("free");
    let error = refused(lock(&manager, &key)).await;
    let asked = error.holder().asked.expect("known");
    assert!(before <= asked && asked <= SystemTime::now(), "{asked:?}");
    assert_eq!(error.holder().since, None);
    guard.release().await.expect("still held");
}
