//! The body of a lost lock: `on_lost`.

use std::cell::Cell;
use std::future::pending;
use std::time::Duration;

use async_trait::async_trait;
use lockmacro_runtime::{LockError, LockGuard, LockManager, LossCause, Lost, distributed_lock};

use crate::{OrderError, cause, probe};

/// Sets its flag when it is dropped.
struct Dropped<'a>(&'a Cell<bool>);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// Returns when the lock that the caller is under is lost.
async fn loss() {
    LockGuard::current().unwrap().lost().await;
}

fn loss_blocking() {
    let lock = LockGuard::current().unwrap();
    while lock.is_held() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

mod cancel {
    use super::*;

    #[distributed_lock(key = "order", ttl = "300ms", on_lost = cancel, manager = locks)]
    async fn audit(locks: &LockManager, dropped: &Cell<bool>) -> Result<(), OrderError> {
        let _dropped = Dropped(dropped);
        loss().await;
        pending().await
    }

    #[distributed_lock(
        key = "order", ttl = "300ms", on_lost = cancel, guard = lock, manager = locks,
    )]
    async fn guarded(locks: &LockManager, dropped: &Cell<bool>) -> Result<(), OrderError> {
        let _dropped = Dropped(dropped);
        lock.lost().await;
        pending().await
    }

    #[tokio::test]
    async fn drops_the_body() {
        let locks = LockManager::isolated_memory();
        let dropped = Cell::new(false);
        assert_eq!(cause(audit(&locks, &dropped).await), LossCause::Expired);
        assert!(dropped.take());
        assert_eq!(cause(guarded(&locks, &dropped).await), LossCause::Expired);
        assert!(dropped.take());
    }
}

mod error {
    use super::*;

    #[distributed_lock(key = "order", ttl = "300ms", on_lost = error, manager = locks)]
    async fn audit(
        locks: &LockManager,
        value: Result<u8, OrderError>,
        done: &Cell<bool>,
    ) -> Result<u8, OrderError> {
        loss().await;
        done.set(true);
        value
    }

    #[distributed_lock(key = "order", ttl = "300ms", on_lost = error, manager = locks)]
    fn audit_blocking(
        locks: &LockManager,
        value: Result<u8, OrderError>,
    ) -> Result<u8, OrderError> {
        loss_blocking();
        value
    }

    #[distributed_lock(key = "order", ttl = "300ms", manager = locks)]
    fn audit_by_default(
        locks: &LockManager,
        value: Result<u8, OrderError>,
    ) -> Result<u8, OrderError> {
        loss_blocking();
        value
    }

    #[tokio::test]
    async fn lets_the_body_finish_and_fails() {
        let locks = LockManager::isolated_memory();
        let done = Cell::new(false);
        assert_eq!(cause(audit(&locks, Ok(7), &done).await), LossCause::Expired);
        assert!(done.get());
    }

    #[tokio::test]
    async fn keeps_the_bodys_own_error() {
        let locks = LockManager::isolated_memory();
        let own = audit(&locks, Err(OrderError::Unknown), &Cell::new(false)).await;
        assert!(matches!(own, Err(OrderError::Unknown)));
    }

    #[test]
    fn is_what_sync_functions_do() {
        let locks = LockManager::isolated_memory();
        for audit in [audit_blocking, audit_by_default] {
            assert_eq!(cause(audit(&locks, Ok(7))), LossCause::Expired);
            assert!(matches!(audit(&locks, Err(OrderError::Unknown)), Err(OrderError::Unknown)));
        }
    }
}

mod finish {
    use super::*;

    #[distributed_lock(key = "order", ttl = "300ms", on_lost = finish, manager = locks)]
    async fn audit(locks: &LockManager) -> Result<u8, OrderError> {
        loss().await;
        Ok(7)
    }

    #[distributed_lock(key = "order", ttl = "300ms", on_lost = finish, manager = locks)]
    fn audit_blocking(locks: &LockManager) -> Result<u8, OrderError> {
        loss_blocking();
        Ok(7)
    }

    #[distributed_lock(
        key = "order", ttl = "300ms", on_lost = finish, on_busy = skip, guard = lock,
        manager = locks,
    )]
    async fn skipping(locks: &LockManager) -> Option<u8> {
        lock.lost().await;
        Some(7)
    }

    #[tokio::test]
    async fn lets_the_value_stand() {
        let locks = LockManager::isolated_memory();
        assert_eq!(audit(&locks).await.unwrap(), 7);
        assert_eq!(skipping(&locks).await, Some(7));
    }

    #[test]
    fn lets_the_value_of_a_sync_function_stand() {
        assert_eq!(audit_blocking(&LockManager::isolated_memory()).unwrap(), 7);
    }
}

mod recovery {
    use super::*;

    /// An order that is written step by step.
    struct Order {
        locks: LockManager,
        steps: Vec<&'static str>,
    }

    impl Order {
        fn new() -> Self {
            Self { locks: LockManager::isolated_memory(), steps: Vec::new() }
        }

        #[distributed_lock(
            key = "order", ttl = "300ms", on_lost = Self::rollback, manager = self.locks,
        )]
        async fn assign(&mut self, slow: bool) -> Result<&mut Vec<&'static str>, OrderError> {
            self.steps.push("reserved");
            if slow {
                loss().await;
            }
            self.steps.push("assigned");
            Ok(&mut self.steps)
        }

        #[distributed_lock(
            key = "order", ttl = "300ms", on_lost = Order::rollback, manager = self.locks,
        )]
        fn assign_blocking(&mut self, slow: bool) -> Result<&mut Vec<&'static str>, OrderError> {
            if slow {
                loss_blocking();
            }
            self.steps.push("assigned");
            Ok(&mut self.steps)
        }

        fn rollback<'a>(
            lost: Lost,
            value: Result<&'a mut Vec<&'static str>, OrderError>,
        ) -> Result<&'a mut Vec<&'static str>, OrderError> {
            assert_eq!((lost.key().as_str(), lost.cause()), ("order", LossCause::Expired));
            let steps = value?;
            steps.push("rolled back");
            Ok(steps)
        }
    }

    #[tokio::test]
    async fn gets_the_loss_and_the_value() {
        let mut order = Order::new();
        assert_eq!(*order.assign(false).await.unwrap(), ["reserved", "assigned"]);
        let steps = order.assign(true).await.unwrap();
        assert_eq!(steps[2..], ["reserved", "assigned", "rolled back"]);
    }

    #[test]
    fn gets_the_loss_and_the_value_of_a_sync_function() {
        let mut order = Order::new();
        assert_eq!(*order.assign_blocking(false).unwrap(), ["assigned"]);
        assert_eq!(order.assign_blocking(true).unwrap()[1..], ["assigned", "rolled back"]);
    }

    #[tokio::test]
    async fn busy_is_an_error_as_ever() {
        let mut order = Order::new();
        let guard = probe(&order.locks, "order").acquire().await.unwrap();
        assert!(order.assign(false).await.unwrap_err().is_busy());
        assert!(order.steps.is_empty());
        guard.release().await.unwrap();
    }

    fn give_up<T>(lost: Lost, _: Result<T, OrderError>) -> Result<T, OrderError> {
        Err(LockError::from(lost).into())
    }

    #[distributed_lock(
        key = "order",
        ttl = "300ms",
        guard = lock,
        fence = fence,
        on_lost = give_up,
        on_busy = fallback(later),
        manager = locks
    )]
    async fn assign<T: Clone>(
        locks: &LockManager,
        id: T,
        slow: bool,
    ) -> Result<(T, bool), OrderError> {
        if slow {
            lock.lost().await;
        }
        Ok((id.clone(), lock.fence() == Some(fence)))
    }

    async fn later<T: Clone>(_: &LockManager, id: T, _: bool) -> Result<(T, bool), OrderError> {
        Ok((id, false))
    }

    #[tokio::test]
    async fn goes_with_a_fallback_a_guard_and_a_fence() {
        let locks = LockManager::isolated_memory();
        assert_eq!(assign(&locks, "SO-1", false).await.unwrap(), ("SO-1", true));
        assert_eq!(cause(assign(&locks, "SO-1", true).await), LossCause::Expired);
        crate::until("the key is gone", async || !crate::held(&locks, "order").await).await;
        let guard = probe(&locks, "order").acquire().await.unwrap();
        assert_eq!(assign(&locks, "SO-1", true).await.unwrap(), ("SO-1", false));
        guard.release().await.unwrap();
    }

    #[distributed_lock(
        key = "job", ttl = "300ms", on_busy = skip, on_lost = discard, manager = locks,
    )]
    async fn job(locks: &LockManager, slow: bool) -> Option<u8> {
        if slow {
            loss().await;
        }
        Some(7)
    }

    #[distributed_lock(
        key = "job", ttl = "300ms", on_busy = skip, on_lost = discard, manager = locks,
    )]
    fn job_blocking(locks: &LockManager) -> Option<u8> {
        loss_blocking();
        Some(7)
    }

    fn discard(_: Lost, value: Option<u8>) -> Option<u8> {
        value.map(|value| value * 6)
    }

    #[tokio::test]
    async fn goes_with_skip() {
        let locks = LockManager::isolated_memory();
        assert_eq!(job(&locks, false).await, Some(7));
        assert_eq!(job(&locks, true).await, Some(42));
        crate::until("the key is gone", async || !crate::held(&locks, "job").await).await;
        let guard = probe(&locks, "job").acquire().await.unwrap();
        assert_eq!(job(&locks, true).await, None);
        guard.release().await.unwrap();
    }

    #[test]
    fn goes_with_skip_in_a_sync_function() {
        assert_eq!(job_blocking(&LockManager::isolated_memory()), Some(42));
    }

    #[async_trait]
    trait Assign {
        async fn assign(&self, id: u64) -> Result<String, OrderError>;
    }

    #[async_trait]
    impl Assign for LockManager {
        #[distributed_lock(
            key = "order:<id>",
            ttl = "300ms",
            guard = lock,
            on_lost = <Self as Undo>::undo,
            manager = self
        )]
        async fn assign(&self, id: u64) -> Result<String, OrderError> {
            lock.lost().await;
            Ok(format!("{id} assigned"))
        }
    }

    trait Undo {
        fn undo(lost: Lost, value: Result<String, OrderError>) -> Result<String, OrderError>;
    }

    impl Undo for LockManager {
        fn undo(lost: Lost, value: Result<String, OrderError>) -> Result<String, OrderError> {
            Ok(format!("{}, undone: {}", value?, lost.key()))
        }
    }

    #[tokio::test]
    async fn goes_with_async_trait() {
        let assign: Box<dyn Assign + Send> = Box::new(LockManager::isolated_memory());
        assert_eq!(assign.assign(42).await.unwrap(), "42 assigned, undone: order:42");
    }

    struct Argument(LockManager, std::sync::Arc<std::sync::Mutex<Option<bool>>>);

    impl Drop for Argument {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = Some(crate::held_blocking(&self.0, "order"));
        }
    }

    #[distributed_lock(
        key = "order", ttl = "30s", guard = lock, on_lost = give_up, manager = argument.0,
    )]
    async fn consume(argument: Argument) -> Result<bool, OrderError> {
        lock.check()?;
        Ok(crate::held(&argument.0, "order").await)
    }

    #[tokio::test]
    async fn an_argument_is_dropped_before_the_lock_is_free() {
        let locks = LockManager::isolated_memory();
        let held_at_drop = std::sync::Arc::default();
        let argument = Argument(locks.clone(), std::sync::Arc::clone(&held_at_drop));
        assert!(tokio::spawn(consume(argument)).await.unwrap().unwrap());
        assert_eq!(*held_at_drop.lock().unwrap(), Some(true));
        assert!(!crate::held(&locks, "order").await);
    }
}
