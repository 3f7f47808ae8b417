//! Two bodies under one key never overlap, and the refused caller gets the reason.

use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::{Backend, on};

use crate::{LONG_TTL, Locked, lock, ms};

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn a_held_lock_is_busy_to_every_other_caller(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let first = lock(&ours, &key);
    let guard = first.acquire().await.expect("free");
    for (caller, other) in [
        ("another manager", lock(&theirs, &key)),
        ("another task of its manager", lock(&ours, &key)),
        ("a clone of its manager", lock(&ours.clone(), &key)),
        ("a clone of the lock", first),
    ] {
        let refused = tokio::spawn(other.acquire()).await.expect("no panic");
        assert!(refused.is_err_and(|error| error.is_busy()), "{caller}");
    }
    guard.release().await.expect("released");
    let guard = lock(&theirs, &key).acquire().await.expect("free again");
    guard.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn keys_that_differ_in_one_byte_do_not_exclude_each_other(backend: &Backend) {
    let manager = backend.manager().await;
    let mut guards = Vec::new();
    for name in ["a", "A", "a ", "a\0", "a\r\n", "{a}", "ä", "订单", "a*", "a?"] {
        let key = backend.key(name);
        let guard = lock(&manager, &key).acquire().await.expect("free");
        assert_eq!(guard.key().to_string(), key);
        guards.push(guard);
    }
    for guard in guards {
        guard.release().await.expect("released");
    }
}

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn a_busy_body_does_not_run(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let mut runs = 0;
    let mut body = async || {
        runs += 1;
        Locked::Ok(())
    };
    let error = lock(&theirs, &key).run(body()).await.expect_err("held");
    assert!(matches!(error, LockError::Busy { .. }), "{error:?}");
    guard.release().await.expect("released");
    // The same body runs where it gets the lock, and so far it has not.
    lock(&theirs, &key).wait(LONG_TTL).run(body()).await.expect("free");
    assert_eq!(runs, 1);
}

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn busy_names_the_holder_and_the_time_left(backend: &Backend) {
    // An empty label is none: then it is `host:pid`.
    let process = format!(":{}:audit_order", std::process::id());
    for (label, named) in [("web-3", "web-3:audit_order"), ("", &*process)] {
        let ours = backend.manager_from(LockManager::builder().label(label)).await;
        let (theirs, key) = (backend.manager().await, backend.key("order:42"));
        let guard = lock(&ours, &key).name("audit_order").acquire().await.expect("free");
        let error = lock(&theirs, &key).acquire().await.expect_err("held");
        let LockError::Busy { key: busy, message, holder, .. } = &error else {
            panic!("not busy: {error}");
        };
        assert_eq!((busy.to_string(), message), (key, &None));
        let owner = error.holder().owner.as_deref().expect("one of ours");
        assert_eq!(holder.owner.as_deref(), Some(owner));
        assert!(owner.starts_with(label) && owner.ends_with(named), "{owner}");
        let left = error.holder().free_within.expect("it has a ttl");
        assert!(left <= LONG_TTL && left > LONG_TTL - ms(20_000), "{left:?}");
        guard.release().await.expect("released");
    }
}

#[on(memory, redis, postgres)]
async fn what_users_put_into_their_own_structs_is_shown_in_a_short_line(backend: &Backend) {
    let (ours, _, key) = backend.two_managers("shown").await;
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let keys = format!("{{ keys: [LockKey({key:?})], .. }}");
    assert_eq!(format!("{guard:?}"), format!("LockGuard {keys}"));
    assert_eq!(format!("{:?}", lock(&ours, &key)), format!("Lock {keys}"));
    let shown = format!("{ours:?}");
    assert!(shown.starts_with("LockManager { label: ") && shown.len() < 300, "{shown}");
    assert!(!shown.contains(&key), "{shown}");
    guard.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn no_error_shows_the_random_part_of_a_token(backend: &Backend) {
    let (ours, theirs, key) = backend.two_managers("order:42").await;
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let error = lock(&theirs, &key).acquire().await.expect_err("held");
    for text in [error.to_string(), format!("{error:?}"), format!("{guard:?}"), format!("{ours:?}")]
    {
        assert!(!has_random_part(&text), "{text}");
    }
    guard.release().await.expect("released");
}

/// 32 hexadecimal digits in a row.
fn has_random_part(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_hexdigit()).any(|word| word.len() >= 32)
}

#[on(memory, redis, cluster, redlock, postgres, both_runtimes)]
async fn bodies_of_many_managers_never_overlap(backend: &Backend) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    let (inside, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let manager = backend.manager().await;
        let (key, inside, done) = (backend.key("hot"), Arc::clone(&inside), Arc::clone(&done));
        tasks.spawn(async move {
            for _ in 0..25 {
                let (inside, done) = (&inside, &done);
                let result: Locked<()> = lock(&manager, &key)
                    .run(async move {
                        assert_eq!(inside.fetch_add(1, SeqCst), 0, "two bodies at once");
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, SeqCst);
                        done.fetch_add(1, SeqCst);
                        Ok(())
                    })
                    .await;
                assert!(result.is_ok() || result.is_err_and(|error| error.is_busy()));
            }
        });
    }
    tasks.join_all().await;
    assert!(done.load(SeqCst) > 0);
}
