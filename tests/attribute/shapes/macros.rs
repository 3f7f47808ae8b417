//! Functions that a `macro_rules!` makes: its arguments are in invisible groups.

use std::time::Duration;

use lockmacro_runtime::{LockError, LockManager, distributed_lock};

use crate::{assert_locked, held};

/// Whether a function that gives `(7's key is held, 8's key is held)` while it runs has ids apart.
macro_rules! assert_apart {
    ($locks:expr, $seven:expr, $called:expr) => {
        let (seven, eight) = $called.unwrap();
        assert!(!eight, "another id has the same lock");
        assert_locked!($locks, $seven, seven);
    };
}

type Held = Result<(bool, bool), LockError>;

#[tokio::test]
async fn the_body_is_a_block() {
    macro_rules! locked {
        ($name:ident, $locks:ident, $id:ident, $body:block) => {
            #[distributed_lock(key = "order:<id>", ttl = "30s", manager = $locks)]
            async fn $name($locks: &LockManager, $id: u64) -> Held $body
        };
    }
    locked!(audit, locks, id, {
        assert_eq!(id, 7);
        Ok((held(locks, "order:7").await, held(locks, "order:8").await))
    });
    let locks = LockManager::isolated_memory();
    assert_apart!(&locks, "order:7", audit(&locks, 7).await);
}

#[test]
fn the_body_of_a_sync_function_is_a_block() {
    macro_rules! locked {
        ($body:block) => {
            #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
            fn audit(locks: &LockManager, id: u64) -> Result<u64, LockError> $body
        };
    }
    locked!({ Ok(5) });
    assert_eq!(audit(&LockManager::isolated_memory(), 7).unwrap(), 5);
}

#[tokio::test]
async fn keys_are_expressions_and_literals() {
    macro_rules! locked {
        ($name:ident, expr $key:expr) => {
            #[distributed_lock(key = $key, ttl = "30s", manager = locks)]
            async fn $name(locks: &LockManager, id: u64) -> Held {
                Ok((held(locks, "order:7").await, held(locks, "order:8").await))
            }
        };
        ($name:ident, literal $key:literal) => {
            #[distributed_lock(key = $key, ttl = "30s", manager = locks)]
            async fn $name(locks: &LockManager, id: u64) -> Held {
                Ok((held(locks, "order:7").await, held(locks, "order:8").await))
            }
        };
        ($name:ident, list $key:expr, $other:literal) => {
            #[distributed_lock(key = [$other, $key], ttl = "30s", manager = locks)]
            async fn $name(locks: &LockManager, id: u64) -> Held {
                Ok((held(locks, "order:7").await, held(locks, "order:8").await))
            }
        };
    }
    locked!(by_expr, expr "order:<id>");
    locked!(by_expr_in_parentheses, expr("order:<id>"));
    locked!(by_literal, literal "order:<id>");
    locked!(by_list, list "order:<id>", "audit:<id>");
    let locks = LockManager::isolated_memory();
    assert_apart!(&locks, "order:7", by_expr(&locks, 7).await);
    assert_apart!(&locks, "order:7", by_expr_in_parentheses(&locks, 7).await);
    assert_apart!(&locks, "order:7", by_literal(&locks, 7).await);
    assert_apart!(&locks, "order:7", by_list(&locks, 7).await);
}

#[tokio::test]
async fn policies_are_paths_and_durations_are_expressions() {
    macro_rules! locked {
        ($fallback:path, $recovery:path, $ttl:expr, $wait:literal, $locks:ident, $manager:expr) => {
            #[distributed_lock(
                            key = "order:<id>", ttl = $ttl, wait = $wait, manager = $manager,
                            on_busy = fallback($fallback), on_lost = $recovery
                        )]
            async fn audit($locks: &LockManager, id: u64) -> Result<u64, LockError> {
                Ok(id)
            }
        };
    }
    mod orders {
        use lockmacro_runtime::{LockError, LockManager, Lost};

        pub async fn later(_: &LockManager, id: u64) -> Result<u64, LockError> {
            Ok(id + 100)
        }
        pub fn undo(lost: Lost, _: Result<u64, LockError>) -> Result<u64, LockError> {
            Err(lost.into())
        }
    }
    locked!(orders::later, orders::undo, Duration::from_secs(10) * 3, "1ms", locks, locks);
    let locks = LockManager::isolated_memory();
    assert_eq!(audit(&locks, 7).await.unwrap(), 7);
    let _other = crate::probe(&locks, "order:7").acquire().await.unwrap();
    assert_eq!(audit(&locks, 7).await.unwrap(), 107);
    assert_eq!(audit(&locks, 8).await.unwrap(), 8);
}

#[tokio::test]
async fn a_return_type_is_a_type() {
    macro_rules! locked {
        ($name:ident, $returns:ty, $body:block) => {
            #[distributed_lock(key = "order:<id>", ttl = "30s", on_busy = skip, manager = locks)]
            async fn $name(locks: &LockManager, id: u64) -> $returns $body
        };
    }
    locked!(nothing, (), {});
    locked!(option, Option<u64>, { Some(5) });
    locked!(result, Result<Option<Box<dyn std::fmt::Debug + Send>>, LockError>, {
        Ok(Some(Box::new(5)))
    });
    let locks = LockManager::isolated_memory();
    let _other = crate::probe(&locks, "order:7").acquire().await.unwrap();
    nothing(&locks, 7).await;
    assert_eq!(option(&locks, 7).await, None);
    assert_eq!(option(&locks, 8).await, Some(5));
    assert!(result(&locks, 7).await.unwrap().is_none());
    assert!(result(&locks, 8).await.unwrap().is_some());
}

/// The items for a job stand beside the function.
mod deferred {
    use std::time::Duration;

    use lockmacro_runtime::distributed_lock;

    macro_rules! locked {
        ($delay:expr, $attempts:literal, $name:literal, $returns:ty, $body:block) => {
            #[distributed_lock(
                key = "order:<id>", ttl = "30s",
                on_busy = defer($delay, attempts = $attempts), name = $name
            )]
            pub async fn audit(id: u64) -> $returns $body
        };
    }
    locked!("30s", 5, "orders.audit", Option<u64>, { Some(5) });

    macro_rules! by_expressions {
        ($delay:expr, $attempts:expr) => {
            #[distributed_lock(
                key = "order:<id>", ttl = "30s", on_busy = defer($delay, attempts = $attempts)
            )]
            pub fn assign(id: u64) {
                let _ = id;
            }
        };
    }
    by_expressions!(Duration::from_secs(30), 5);
}

#[test]
fn a_deferred_function_takes_what_a_macro_is_given() {
    let shown = format!("{:?} {:?}", deferred::audit_deferred(), deferred::assign_deferred());
    assert!(shown.contains("orders.audit"), "{shown}");
}
