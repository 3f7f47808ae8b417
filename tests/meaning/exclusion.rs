//! Two bodies under one key never overlap, and the refused caller gets the reason.

use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::{Backend, on};

use crate::{LONG_TTL, Locked, lock, ms};

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_held_lock_is_busy_to_another_manager(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let error = lock(&theirs, &key).acquire().await.expect_err("held");
    assert!(error.is_busy(), "{error}");
    guard.release().await.expect("released");
    let guard = lock(&theirs, &key).acquire().await.expect("free again");
    guard.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_held_lock_is_busy_to_another_task_of_its_manager(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let guard = lock(&manager, &key).acquire().await.expect("free");
    let again = tokio::spawn(lock(&manager, &key).acquire());
    let error = again.await.expect("the task ends").expect_err("held");
    assert!(error.is_busy(), "{error}");
    guard.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_clone_of_a_manager_excludes_the_original(backend: &Backend) {
    let manager = backend.manager().await;
    let key = backend.key("order:42");
    let guard = lock(&manager.clone(), &key).acquire().await.expect("free");
    let again = tokio::spawn(lock(&manager, &key).acquire());
    assert!(again.await.expect("the task ends").expect_err("held").is_busy());
    guard.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_clone_of_a_lock_is_another_acquisition(backend: &Backend) {
    let manager = backend.manager().await;
    let first = lock(&manager, &backend.key("order:42"));
    let second = first.clone();
    let guard = first.acquire().await.expect("free");
    let again = tokio::spawn(second.acquire());
    assert!(again.await.expect("the task ends").expect_err("held").is_busy());
    guard.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn different_keys_do_not_exclude_each_other(backend: &Backend) {
    let manager = backend.manager().await;
    let first = lock(&manager, &backend.key("order:1")).acquire().await.expect("free");
    let second = lock(&manager, &backend.key("order:2")).acquire().await.expect("free as well");
    first.release().await.expect("released");
    second.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
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

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn a_busy_body_does_not_run(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
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

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn busy_names_the_holder_and_the_time_left(backend: &Backend) {
    let ours = backend.manager_from(LockManager::builder().label("web-3")).await;
    let theirs = backend.manager().await;
    let key = backend.key("order:42");
    let guard = lock(&ours, &key).name("audit_order").acquire().await.expect("free");
    let error = lock(&theirs, &key).acquire().await.expect_err("held");
    let LockError::Busy { key: busy, message, holder, .. } = &error else {
        panic!("not busy: {error}");
    };
    assert_eq!(busy.to_string(), key);
    let owner = error.owner().expect("one of ours");
    assert_eq!(holder.owner.as_deref(), Some(owner));
    assert!(owner.starts_with("web-3") && owner.contains("audit_order"), "{owner}");
    let left = error.free_within().expect("it has a ttl");
    assert!(left <= LONG_TTL && left > LONG_TTL - ms(20_000), "{left:?}");
    assert_eq!(*message, None);
    guard.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn an_empty_label_is_none(backend: &Backend) {
    let ours = backend.manager_from(LockManager::builder().label("")).await;
    let theirs = backend.manager().await;
    let key = backend.key("order:42");
    let guard = lock(&ours, &key).name("audit_order").acquire().await.expect("free");
    let error = lock(&theirs, &key).acquire().await.expect_err("held");
    let owner = error.owner().map(str::to_owned);
    // Of `host:pid:function`.
    let process = format!(":{}:audit_order", std::process::id());
    assert!(owner.as_ref().is_some_and(|owner| owner.ends_with(&process)), "{owner:?}");
    guard.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn busy_shows_the_message(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
    let guard = lock(&ours, &key).acquire().await.expect("free");
    let text = "order 42 is being audited";
    let error = lock(&theirs, &key).message(text).acquire().await.expect_err("held");
    assert!(error.to_string().contains(text), "{error}");
    let LockError::Busy { message, .. } = error else { panic!("not busy: {error}") };
    assert_eq!(message.as_deref(), Some(text));
    guard.release().await.expect("released");
}

#[on(memory, redis, cluster, redlock, both_runtimes)]
async fn no_error_shows_the_random_part_of_a_token(backend: &Backend) {
    let (ours, theirs) = (backend.manager().await, backend.manager().await);
    let key = backend.key("order:42");
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

#[on(memory, redis, cluster, redlock, both_runtimes)]
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
    while let Some(task) = tasks.join_next().await {
        task.expect("no overlap");
    }
    assert!(done.load(SeqCst) > 0);
}
