//! Defaults of a manager, and attributes that override them.

use std::time::{Duration, Instant};

use lockmacro_runtime::{Fence, LockError, LockManager, distributed_lock};

use crate::{OrderError, ms, probe};

/// A manager whose locks wait longer than any test does.
fn patient() -> LockManager {
    LockManager::builder().default_wait(Duration::from_secs(60)).isolated_memory()
}

fn is_busy_at_once<T: std::fmt::Debug>(result: Result<T, OrderError>, start: Instant) {
    let error = result.expect_err("held");
    assert!(matches!(error, OrderError::Lock(LockError::Busy { .. })), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_function_that_never_waits_asks_once() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", wait = never, manager = locks)]
    async fn audit(locks: &LockManager, id: u64) -> Result<u64, OrderError> {
        Ok(id)
    }
    let locks = patient();
    let held = probe(&locks, "order:42").acquire().await.unwrap();
    is_busy_at_once(audit(&locks, 42).await, Instant::now());
    held.release().await.unwrap();
    assert_eq!(audit(&locks, 42).await.unwrap(), 42);
}

#[tokio::test]
async fn a_function_that_names_no_wait_waits_as_its_manager_says() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
    async fn audit(locks: LockManager, id: u64) -> Result<u64, OrderError> {
        Ok(id)
    }
    let locks = patient();
    let held = probe(&locks, "order:42").acquire().await.unwrap();
    let mut waiting = tokio::spawn(audit(locks, 42));
    tokio::time::timeout(ms(30), &mut waiting).await.expect_err("it waits");
    held.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), 42);
}

#[tokio::test]
async fn a_job_that_is_skipped_when_busy_waits_only_with_a_wait_of_its_own() {
    #[distributed_lock(key = "report", ttl = "30s", on_busy = skip, manager = locks)]
    async fn report(locks: &LockManager) -> Option<u64> {
        Some(1)
    }
    #[distributed_lock(key = "report", ttl = "30s", on_busy = skip, fence = fence, manager = locks)]
    async fn fenced(locks: &LockManager) -> Option<Fence> {
        Some(fence)
    }
    #[distributed_lock(key = "report", ttl = "30s", on_busy = skip, wait = "1ms", manager = locks)]
    async fn waiting(locks: &LockManager) -> Result<Option<u64>, LockError> {
        Ok(Some(1))
    }
    let locks = patient();
    let held = probe(&locks, "report").acquire().await.unwrap();
    let start = Instant::now();
    assert_eq!((report(&locks).await, fenced(&locks).await), (None, None));
    assert_eq!(waiting(&locks).await, Ok(None));
    assert!(start.elapsed() < Duration::from_secs(30));
    held.release().await.unwrap();
    assert!(report(&locks).await.is_some() && fenced(&locks).await.is_some());
}

#[test]
fn a_sync_job_that_is_skipped_when_busy_does_not_wait_either() {
    #[distributed_lock(key = "report", ttl = "30s", on_busy = skip, manager = locks)]
    fn report(locks: &LockManager) -> Option<u64> {
        Some(1)
    }
    let locks = patient();
    let held = probe(&locks, "report").acquire_blocking().unwrap();
    let start = Instant::now();
    assert_eq!(report(&locks), None);
    assert!(start.elapsed() < Duration::from_secs(30));
    held.release_blocking().unwrap();
    assert_eq!(report(&locks), Some(1));
}

struct User {
    name: String,
}

#[tokio::test]
async fn a_holder_leaves_a_note_made_of_its_arguments() {
    #[distributed_lock(
        key = "order:<id>", ttl = "30s", message = "order <id> is being processed",
        holder_note = "<user.name>, no <id>", manager = locks,
    )]
    async fn audit(
        locks: &LockManager,
        id: u64,
        user: &User,
        ended: tokio::sync::oneshot::Receiver<()>,
    ) -> Result<u64, OrderError> {
        ended.await.map_err(|_| OrderError::Unknown)?;
        Ok(id)
    }
    let locks = LockManager::builder().label("web-3").isolated_memory();
    let ann = User { name: "Ann Example".to_owned() };
    let (end, ended) = tokio::sync::oneshot::channel();
    let holding = audit(&locks, 42, &ann, ended);
    tokio::pin!(holding);
    assert!(futures::poll!(&mut holding).is_pending());
    let (_, never) = tokio::sync::oneshot::channel();
    let bob = User { name: "Bob".to_owned() };
    let Err(OrderError::Lock(busy)) = audit(&locks, 42, &bob, never).await else {
        panic!("it is held");
    };
    assert_eq!(busy.holder().note.as_deref(), Some("Ann Example, no 42"));
    assert_eq!(
        busy.to_string(),
        "order 42 is being processed (locked by web-3:shapes::defaults::audit \
         (Ann Example, no 42): try again in 5s)"
    );
    end.send(()).unwrap();
    assert_eq!(holding.await.unwrap(), 42);
}
