//! `when`: bodies that run under the lock, and without it where the condition is false.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use async_trait::async_trait;
use lockmacro_runtime::{LockError, LockGuard, LockManager, Lost, distributed_lock};

use crate::{OrderError, assert_locked, held, held_blocking, probe};

#[tokio::test]
async fn the_body_runs_with_the_lock_or_without_it() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", when = !dry_run, manager = locks)]
    async fn audit(locks: &LockManager, id: u64, dry_run: bool) -> Result<bool, LockError> {
        Ok(held(locks, "order:42").await && id == 42)
    }
    let locks = LockManager::memory();
    assert_locked!(&locks, "order:42", audit(&locks, 42, false).await.unwrap());
    assert!(!audit(&locks, 42, true).await.unwrap());
    // Nothing is asked: a busy lock does not matter.
    let guard = probe(&locks, "order:42").acquire().await.unwrap();
    assert!(audit(&locks, 42, false).await.unwrap_err().is_busy());
    assert!(audit(&locks, 42, true).await.unwrap());
    guard.release().await.unwrap();
}

#[test]
fn a_sync_body_runs_with_the_lock_or_without_it() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", when = !dry_run, manager = locks)]
    fn audit(
        locks: &LockManager,
        id: u64,
        dry_run: bool,
        mut notes: Vec<u64>,
    ) -> Result<(bool, Vec<u64>), LockError> {
        notes.push(id);
        Ok((held_blocking(locks, "order:42"), notes))
    }
    let locks = LockManager::memory();
    assert_eq!(audit(&locks, 42, false, vec![7]).unwrap(), (true, vec![7, 42]));
    assert_eq!(audit(&locks, 42, true, vec![7]).unwrap(), (false, vec![7, 42]));
}

#[tokio::test]
async fn it_is_evaluated_once_and_before_everything_else() {
    fn counts(calls: &AtomicU32, needed: bool) -> bool {
        calls.fetch_add(1, SeqCst);
        needed
    }
    #[distributed_lock(
        key = "order:<ids[0]>",
        ttl = "30s",
        when = counts(&CALLS, !ids.is_empty()),
        manager = locks
    )]
    async fn audit(locks: &LockManager, ids: &[u64]) -> Result<usize, LockError> {
        Ok(ids.len())
    }
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let locks = LockManager::memory();
    // The key of no orders would panic.
    assert_eq!(audit(&locks, &[]).await, Ok(0));
    assert_eq!(CALLS.swap(0, SeqCst), 1);
    assert_eq!(audit(&locks, &[42]).await, Ok(1));
    assert_eq!(CALLS.load(SeqCst), 1);
}

#[tokio::test]
async fn without_the_lock_no_manager_is_needed() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", when = id > 9)]
    async fn audit(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
    assert_eq!(audit(7).await, Ok(7));
    assert_eq!(audit(42).await, Err(LockError::NotInstalled));
}

struct Order {
    lines: Vec<u64>,
    note: String,
}

impl Order {
    fn is_large(&self) -> bool {
        self.lines.len() > 1
    }
}

#[tokio::test]
async fn the_body_has_all_arguments_of_the_condition() {
    #[distributed_lock(key = "<order.note>", when = order.is_large(), manager = locks)]
    async fn audit(locks: &LockManager, order: Order) -> Result<(bool, Vec<u64>), LockError> {
        Ok((held(locks, "pallet").await, order.lines))
    }
    #[distributed_lock(
        key = "<order.note>",
        when = !order.lines.is_empty() && matches!(order.lines[..], [_, _, ..]),
        manager = locks
    )]
    fn count(locks: &LockManager, order: Order) -> Result<(bool, usize), LockError> {
        Ok((held_blocking(locks, "pallet"), order.lines.len()))
    }
    let locks = LockManager::memory();
    let order = |lines| Order { lines, note: "pallet".to_owned() };
    for (lines, is_held) in [(vec![1], false), (vec![1, 2], true)] {
        let found = audit(&locks, order(lines.clone())).await.unwrap();
        assert_eq!(found, (is_held, lines.clone()));
        let (locks, order) = (locks.clone(), order(lines.clone()));
        let counted = std::thread::spawn(move || count(&locks, order)).join().unwrap();
        assert_eq!(counted.unwrap(), (is_held, lines.len()));
    }
}

#[tokio::test]
async fn the_guard_is_there_where_the_lock_is() {
    #[distributed_lock(key = "order", ttl = "30s", when = needed, guard = lock, manager = locks)]
    async fn audit(locks: &LockManager, needed: bool) -> Result<Option<String>, LockError> {
        tokio::task::yield_now().await;
        let Some(lock) = lock else { return Ok(None) };
        lock.check()?;
        assert!(held(locks, "order").await);
        Ok(Some(lock.key().to_string()))
    }
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    let locks = LockManager::memory();
    assert_eq!(assert_send(audit(&locks, true)).await, Ok(Some("order".to_owned())));
    assert!(!held(&locks, "order").await);
    assert_eq!(audit(&locks, false).await, Ok(None));
}

#[test]
fn the_guard_is_there_in_a_sync_body_too() {
    #[distributed_lock(key = "order", when = needed, guard = lock, on_busy = skip, manager = locks)]
    fn audit(locks: &LockManager, needed: bool) -> Option<bool> {
        Some(lock.is_some_and(LockGuard::is_held))
    }
    let locks = LockManager::memory();
    assert_eq!(audit(&locks, true), Some(true));
    let guard = probe(&locks, "order").acquire_blocking().unwrap();
    assert_eq!((audit(&locks, true), audit(&locks, false)), (None, Some(false)));
    guard.release_blocking().unwrap();
}

#[tokio::test]
async fn it_goes_with_skip_and_a_fallback_and_a_message() {
    #[distributed_lock(key = "job", on_busy = skip, when = needed, manager = locks)]
    async fn skipped(locks: &LockManager, needed: bool) -> Option<u32> {
        Some(7)
    }
    #[distributed_lock(
        key = "job",
        on_busy = fallback(later),
        when = needed,
        release = background,
        manager = locks
    )]
    async fn tried(locks: &LockManager, needed: bool) -> Result<u32, LockError> {
        Ok(7)
    }
    async fn later(_: &LockManager, _: bool) -> Result<u32, LockError> {
        Ok(8)
    }
    #[distributed_lock(key = "job", message = "<id> runs", when = id > 9, manager = locks)]
    async fn told(locks: &LockManager, id: u64) -> Result<u64, OrderError> {
        Ok(id)
    }
    let locks = LockManager::memory();
    let guard = probe(&locks, "job").acquire().await.unwrap();
    assert_eq!((skipped(&locks, true).await, skipped(&locks, false).await), (None, Some(7)));
    assert_eq!((tried(&locks, true).await, tried(&locks, false).await), (Ok(8), Ok(7)));
    let Err(OrderError::Lock(busy)) = told(&locks, 42).await else { panic!("it is held") };
    assert_eq!(busy.message(), Some("42 runs"));
    assert_eq!(told(&locks, 7).await.unwrap(), 7);
    guard.release().await.unwrap();
    assert_eq!((skipped(&locks, true).await, tried(&locks, true).await), (Some(7), Ok(7)));
}

#[tokio::test]
async fn a_loss_without_a_lock_does_not_exist() {
    #[distributed_lock(
        key = "order",
        ttl = "100ms",
        when = needed,
        on_lost = kept,
        map_err = std::io::Error::other,
        manager = locks
    )]
    async fn audit(locks: &LockManager, needed: bool) -> std::io::Result<&'static str> {
        tokio::time::sleep(std::time::Duration::from_millis(130)).await;
        Ok("done")
    }
    fn kept(_: Lost, _: std::io::Result<&'static str>) -> std::io::Result<&'static str> {
        Ok("lost")
    }
    let locks = LockManager::memory();
    assert_eq!(audit(&locks, true).await.unwrap(), "lost");
    assert_eq!(audit(&locks, false).await.unwrap(), "done");
}

#[tokio::test]
async fn several_keys_and_a_manager_of_branches() {
    #[distributed_lock(
        key = ["account:<from>", "account:<to>"],
        when = cents > 0,
        manager = if north { &locks[0] } else { &locks[1] }
    )]
    async fn transfer(
        locks: &[LockManager; 2],
        (from, to): (u64, u64),
        cents: u64,
        north: bool,
    ) -> Result<usize, LockError> {
        assert_eq!(held(&locks[0], "account:3").await, north && cents > 0);
        Ok(LockGuard::current().map_or(0, |lock| lock.keys().len()))
    }
    let locks = [LockManager::memory(), LockManager::memory()];
    for north in [true, false] {
        assert_eq!(transfer(&locks, (7, 3), 100, north).await, Ok(2));
        assert_eq!(transfer(&locks, (7, 3), 0, north).await, Ok(0));
    }
}

struct Orders {
    locks: LockManager,
    is_test: bool,
    audited: Vec<u64>,
}

impl Orders {
    #[distributed_lock(key = "<id>", when = !self.is_test, manager = self.locks)]
    async fn audit(&mut self, id: u64) -> Result<&[u64], LockError> {
        if held(&self.locks, "42").await {
            self.audited.push(id);
        }
        Ok(&self.audited)
    }

    #[distributed_lock(
        key = "<id>", when = { let test = self.is_test; !test }, manager = self.locks
    )]
    fn audit_blocking(&mut self, id: u64) -> Result<&mut Vec<u64>, LockError> {
        if held_blocking(&self.locks, "42") {
            self.audited.push(id);
        }
        Ok(&mut self.audited)
    }
}

#[async_trait]
trait Audit {
    async fn audit_boxed(&mut self, id: u64) -> Result<&[u64], LockError>;
}

#[async_trait]
impl Audit for Orders {
    #[distributed_lock(key = "<id>", when = !self.is_test, guard = lock, manager = self.locks)]
    async fn audit_boxed(&mut self, id: u64) -> Result<&[u64], LockError> {
        if lock.is_some() {
            self.audited.push(id);
        }
        Ok(&self.audited)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_have_it_too() {
    let mut orders = Orders { locks: LockManager::memory(), is_test: true, audited: Vec::new() };
    for (is_test, audited) in [(true, 0), (false, 3)] {
        orders.is_test = is_test;
        orders.audit(42).await.unwrap();
        orders.audit_boxed(42).await.unwrap();
        tokio::task::block_in_place(|| orders.audit_blocking(42).map(drop)).unwrap();
        assert_eq!(orders.audited.len(), audited);
    }
}

#[tokio::test]
async fn a_temporary_of_the_condition_ends_before_the_body() {
    #[distributed_lock(key = "order", when = *on.lock().unwrap(), manager = locks)]
    async fn audit(locks: &LockManager, on: &Mutex<bool>) -> Result<bool, LockError> {
        tokio::task::yield_now().await;
        Ok(on.try_lock().is_ok())
    }
    let locks = LockManager::memory();
    for on in [true, false] {
        assert_eq!(audit(&locks, &Mutex::new(on)).await, Ok(true));
    }
}

/// Three bodies of 1,000 bytes each would be three times as large.
#[test]
fn the_future_has_the_body_once() {
    #[distributed_lock(key = "order", manager = locks)]
    async fn plain(locks: &LockManager, large: [u8; 1_000]) -> Result<u8, LockError> {
        tokio::task::yield_now().await;
        Ok(large[0])
    }
    #[distributed_lock(key = "order", when = needed, manager = locks)]
    async fn either(
        locks: &LockManager,
        large: [u8; 1_000],
        needed: bool,
    ) -> Result<u8, LockError> {
        tokio::task::yield_now().await;
        Ok(large[0])
    }
    let locks = LockManager::memory();
    let plain = size_of_val(&plain(&locks, [0; 1_000]));
    let either = size_of_val(&either(&locks, [0; 1_000], true));
    assert!(either <= plain + 64, "{either} bytes, and {plain} without `when`");
}

#[test]
fn a_static_of_the_body_is_one() {
    #[distributed_lock(key = "order", when = needed, manager = locks)]
    fn count(locks: &LockManager, needed: bool) -> Result<u32, LockError> {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        Ok(CALLS.fetch_add(1, SeqCst))
    }
    let locks = LockManager::memory();
    assert_eq!((count(&locks, true), count(&locks, false)), (Ok(0), Ok(1)));
}
