//! The guard and the fence in the body, and locks inside of locks.

use std::time::Duration;

use async_trait::async_trait;
use lockmacro_runtime::{Fence, LockError, LockGuard, LockManager, distributed_lock};

use crate::{OrderError, assert_locked, assert_send, held, probe};

#[tokio::test]
async fn the_guard_is_there_in_the_body() {
    #[distributed_lock(key = "order:<id>", ttl = "5s", guard = lock, manager = locks)]
    async fn audit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
        assert_eq!(lock.key().as_str(), format!("order:{id}"));
        assert!(lock.is_held() && lock.fence().is_none());
        assert!(lock.remaining() < Duration::from_secs(5));
        lock.extend(Duration::from_secs(60)).await?;
        assert!(lock.remaining() > Duration::from_secs(30));
        lock.check()?;
        Ok(held(locks, "order:42").await)
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "order:42", audit(&locks, 42).await.unwrap());
}

#[tokio::test]
async fn fences_grow_from_call_to_call() {
    #[distributed_lock(key = "order", ttl = "30s", fence = fence, manager = locks)]
    async fn write(locks: &LockManager) -> Result<(bool, Fence), LockError> {
        Ok((held(locks, "order").await, fence))
    }
    let locks = LockManager::isolated_memory();
    let mut last = None;
    for _ in 0..3 {
        let (held, fence) = write(&locks).await.unwrap();
        assert_locked!(&locks, "order", held);
        assert!(Some(fence) > last, "{fence} after {last:?}");
        last = Some(fence);
    }
    let _guard = probe(&locks, "order").acquire().await.unwrap();
    assert!(write(&locks).await.unwrap_err().is_busy());
}

#[test]
fn skip_goes_with_a_guard_and_a_fence_in_sync_functions() {
    #[distributed_lock(key = "job", on_busy = skip, guard = lock, fence = fence, manager = locks)]
    fn job(locks: &LockManager) -> Result<Option<bool>, OrderError> {
        lock.check()?;
        Ok(Some(lock.fence() == Some(fence)))
    }
    let locks = LockManager::isolated_memory();
    assert_eq!(job(&locks).unwrap(), Some(true));
    let _guard = probe(&locks, "job").acquire_blocking().unwrap();
    assert_eq!(job(&locks).unwrap(), None);
}

struct Orders {
    locks: LockManager,
    written: Vec<Fence>,
}

impl Orders {
    #[distributed_lock(key = "order", guard = lock, fence = fence, manager = self.locks)]
    async fn write(&mut self) -> Result<&[Fence], LockError> {
        lock.check()?;
        self.written.push(fence);
        Ok(&self.written)
    }

    #[distributed_lock(key = "order", guard = r#move, fence = r#fence, manager = self.locks)]
    fn write_blocking(&mut self) -> Result<&[Fence], LockError> {
        r#move.check()?;
        self.written.push(fence);
        Ok(&self.written)
    }
}

#[async_trait]
trait Write {
    async fn write_boxed(&mut self) -> Result<&[Fence], LockError>;
}

#[async_trait]
impl Write for Orders {
    #[distributed_lock(key = "order", guard = lock, fence = fence, manager = self.locks)]
    async fn write_boxed(&mut self) -> Result<&[Fence], LockError> {
        lock.check()?;
        self.written.push(fence);
        Ok(&self.written)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_have_them_too() {
    let mut orders = Orders { locks: LockManager::isolated_memory(), written: Vec::new() };
    orders.write().await.unwrap();
    orders.write_boxed().await.unwrap();
    let written = tokio::task::block_in_place(|| orders.write_blocking()).unwrap();
    assert!(written.len() == 3 && written.is_sorted(), "{written:?}");
}

#[tokio::test]
async fn the_future_stays_send() {
    #[distributed_lock(key = "<id.lock().unwrap()>", guard = lock, fence = fence, manager = locks)]
    async fn audit(locks: &LockManager, id: &std::sync::Mutex<u64>) -> Result<bool, LockError> {
        let free = id.try_lock().is_ok();
        tokio::task::yield_now().await;
        Ok(free && lock.fence() == Some(fence))
    }
    let locks = LockManager::isolated_memory();
    assert!(assert_send(audit(&locks, &std::sync::Mutex::new(7))).await.unwrap());
}

macro_rules! guarded {
    ($name:ident, $guard:ident, $fence:ident, $body:expr) => {
        #[distributed_lock(key = "order", guard = $guard, fence = $fence, manager = locks)]
        async fn $name(locks: &LockManager) -> Result<bool, LockError> {
            Ok($body)
        }
    };
}
guarded!(named_by_a_macro, lock, fence, lock.fence() == Some(fence));

#[tokio::test]
async fn names_come_through_a_macro() {
    assert!(named_by_a_macro(&LockManager::isolated_memory()).await.unwrap());
}

/// Says whether it is called under the lock on `key`.
fn is_under(key: &str) -> bool {
    LockGuard::current().is_some_and(|lock| lock.key().as_str() == key && lock.is_held())
}

#[tokio::test]
async fn a_callee_finds_the_lock() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
    async fn audit(locks: &LockManager, id: u64) -> Result<[bool; 3], LockError> {
        let elsewhere = tokio::spawn(async { LockGuard::current().is_none() });
        tokio::task::yield_now().await;
        Ok([is_under("order:42"), is_under("order:43"), elsewhere.await.unwrap()])
    }
    let locks = LockManager::isolated_memory();
    assert!(!is_under("order:42"));
    assert_eq!(audit(&locks, 42).await.unwrap(), [true, false, true]);
    assert!(LockGuard::current().is_none());
}

#[test]
fn a_callee_of_a_sync_function_finds_the_lock() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", guard = lock, manager = locks)]
    fn audit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
        Ok(is_under("order:42") && is_under(lock.key().as_str()))
    }
    assert!(audit(&LockManager::isolated_memory(), 42).unwrap());
    assert!(!is_under("order:42"));
}

#[tokio::test]
async fn recursion_under_one_key_joins() {
    #[distributed_lock(key = "order", ttl = "30s", guard = lock, fence = fence, manager = locks)]
    async fn descend(locks: &LockManager, level: u32) -> Result<Vec<Fence>, LockError> {
        let mut fences = match level {
            0 => Vec::new(),
            _ => Box::pin(descend(locks, level - 1)).await?,
        };
        lock.check()?;
        assert!(held(locks, "order").await, "released by an inner call");
        fences.push(fence);
        Ok(fences)
    }
    let locks = LockManager::isolated_memory();
    let fences = descend(&locks, 3).await.unwrap();
    assert!(fences.len() == 4 && fences.iter().all(|fence| *fence == fences[0]), "{fences:?}");
    assert!(!held(&locks, "order").await);
}

#[tokio::test]
async fn a_spawned_task_joins_in_the_scope_of_the_guard() {
    #[distributed_lock(key = "order", ttl = "30s", guard = lock, manager = locks)]
    async fn outer(locks: &LockManager) -> Result<(bool, bool), LockError> {
        let busy = tokio::spawn(inner(locks.clone())).await.unwrap();
        let (shared, locks) = (lock.handle(), locks.clone());
        let joined = tokio::spawn(async move { shared.scope(inner(locks)).await }).await.unwrap();
        Ok((busy.is_err_and(|error| error.is_busy()), joined?))
    }
    #[distributed_lock(key = "order", ttl = "30s", manager = locks)]
    async fn inner(locks: LockManager) -> Result<bool, LockError> {
        Ok(held(&locks, "order").await)
    }
    assert_eq!(outer(&LockManager::isolated_memory()).await.unwrap(), (true, true));
}

#[tokio::test]
async fn a_fence_asked_for_inside_of_a_lock_without_one_is_an_error() {
    #[distributed_lock(key = "order", ttl = "30s", manager = locks)]
    async fn outer(locks: &LockManager) -> Result<Fence, LockError> {
        inner(locks).await
    }
    #[distributed_lock(key = "order", ttl = "30s", fence = fence, manager = locks)]
    async fn inner(locks: &LockManager) -> Result<Fence, LockError> {
        Ok(fence)
    }
    let locks = LockManager::isolated_memory();
    assert!(matches!(outer(&locks).await, Err(LockError::Nested { .. })));
    assert!(inner(&locks).await.is_ok());
}
