//! The body of a lost lock: `on_lost`.

use std::cell::Cell;

use async_trait::async_trait;
use lockmacro_runtime::{LockError, LockManager, LossCause, Lost, distributed_lock};

use crate::{OrderError, block_until_lost, cause, probe, stays, until_lost};

/// Sets its flag when it is dropped.
struct Dropped<'a>(&'a Cell<bool>);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

mod cancel {
    use super::*;

    #[distributed_lock(
        key = "order", ttl = "300ms", on_lost = cancel, guard = lock, manager = locks,
    )]
    async fn audit(locks: &LockManager, dropped: &Cell<bool>) -> Result<(), OrderError> {
        let _dropped = Dropped(dropped);
        lock.lost().await;
        stays().await
    }

    #[tokio::test(start_paused = true)]
    async fn drops_the_body() {
        let dropped = Cell::new(false);
        let ended = audit(&LockManager::isolated_memory(), &dropped).await;
        assert_eq!(cause(ended), LossCause::Expired);
        assert!(dropped.take());
    }
}

mod error {
    use super::*;

    #[distributed_lock(key = "order", ttl = "300ms", manager = locks)]
    fn audit(locks: &LockManager, value: Result<u8, OrderError>) -> Result<u8, OrderError> {
        block_until_lost();
        value
    }

    #[distributed_lock(key = "order", ttl = "300ms", on_lost = error, manager = locks)]
    async fn audit_to_the_end(locks: &LockManager, done: &Cell<bool>) -> Result<u8, OrderError> {
        until_lost().await;
        done.set(true);
        Ok(7)
    }

    #[tokio::test(start_paused = true)]
    async fn lets_the_body_finish_and_fails() {
        let done = Cell::new(false);
        let ended = audit_to_the_end(&LockManager::isolated_memory(), &done).await;
        assert_eq!(cause(ended), LossCause::Expired);
        assert!(done.get());
    }

    #[test]
    fn is_what_sync_functions_do_and_keeps_the_bodys_own_error() {
        let locks = LockManager::isolated_memory();
        assert_eq!(cause(audit(&locks, Ok(7))), LossCause::Expired);
        let own = audit(&locks, Err(OrderError::Unknown));
        assert!(matches!(own, Err(OrderError::Unknown)));
    }
}

mod finish {
    use super::*;

    #[distributed_lock(
        key = "order", ttl = "300ms", on_lost = finish, on_busy = skip, guard = lock,
        manager = locks,
    )]
    async fn skipping(locks: &LockManager) -> Option<u8> {
        lock.lost().await;
        Some(7)
    }

    #[distributed_lock(key = "order", ttl = "300ms", on_lost = finish, manager = locks)]
    fn audit_blocking(locks: &LockManager) -> Result<u8, OrderError> {
        block_until_lost();
        Ok(7)
    }

    #[tokio::test(start_paused = true)]
    async fn lets_the_value_stand() {
        assert_eq!(skipping(&LockManager::isolated_memory()).await, Some(7));
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
                until_lost().await;
            }
            self.steps.push("assigned");
            Ok(&mut self.steps)
        }

        #[distributed_lock(
            key = "order", ttl = "300ms", on_lost = Order::rollback, manager = self.locks,
        )]
        fn assign_blocking(&mut self, slow: bool) -> Result<&mut Vec<&'static str>, OrderError> {
            if slow {
                block_until_lost();
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

    #[tokio::test(start_paused = true)]
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

    fn give_up<T>(lost: Lost, _: Result<T, OrderError>) -> Result<T, OrderError> {
        Err(LockError::from(lost).into())
    }

    #[distributed_lock(
        key = "order", ttl = "300ms", guard = lock, fence = fence, on_lost = give_up,
        on_busy = fallback(later), manager = locks,
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

    #[tokio::test(start_paused = true)]
    async fn goes_with_a_fallback_a_guard_and_a_fence() {
        let locks = LockManager::isolated_memory();
        assert_eq!(assign(&locks, "SO-1", false).await.unwrap(), ("SO-1", true));
        assert_eq!(cause(assign(&locks, "SO-1", true).await), LossCause::Expired);
        let _guard = probe(&locks, "order").wait_forever().acquire().await.unwrap();
        assert_eq!(assign(&locks, "SO-1", true).await.unwrap(), ("SO-1", false));
    }

    #[distributed_lock(
        key = "job", ttl = "300ms", on_busy = skip, on_lost = discard, manager = locks,
    )]
    async fn job(locks: &LockManager, slow: bool) -> Option<u8> {
        if slow {
            until_lost().await;
        }
        Some(7)
    }

    #[distributed_lock(
        key = "job", ttl = "300ms", on_busy = skip, on_lost = discard, manager = locks,
    )]
    fn job_blocking(locks: &LockManager) -> Option<u8> {
        block_until_lost();
        Some(7)
    }

    fn discard(_: Lost, value: Option<u8>) -> Option<u8> {
        value.map(|value| value * 6)
    }

    #[tokio::test(start_paused = true)]
    async fn goes_with_skip() {
        let locks = LockManager::isolated_memory();
        assert_eq!(job(&locks, false).await, Some(7));
        assert_eq!(job(&locks, true).await, Some(42));
        let _guard = probe(&locks, "job").wait_forever().acquire().await.unwrap();
        assert_eq!(job(&locks, true).await, None);
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
            key = "order:<id>", ttl = "300ms", guard = lock, on_lost = <Self as Undo>::undo,
            manager = self,
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

    #[tokio::test(start_paused = true)]
    async fn goes_with_async_trait() {
        let assign: Box<dyn Assign + Send> = Box::new(LockManager::isolated_memory());
        assert_eq!(assign.assign(42).await.unwrap(), "42 assigned, undone: order:42");
    }
}
