//! `unlocked`: the body under a second name, for callers that hold the lock.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use lockmacro_runtime::{Lock, LockError, LockManager, distributed_lock};

use crate::{assert_locked, held, held_blocking, probe};

#[distributed_lock(key = "order:<id>", ttl = "30s", unlocked = audit_held, manager = locks)]
async fn audit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
    if id == 0 {
        return Ok(false);
    }
    tokio::task::yield_now().await;
    Ok(held(locks, &format!("order:{id}")).await)
}

/// What a panic says.
fn said(panic: Box<dyn std::any::Any + Send>) -> String {
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_caller_that_holds_the_lock_runs_the_body() {
    let locks = LockManager::memory();
    assert_locked!(&locks, "order:42", audit(&locks, 42).await.unwrap());
    let all = Lock::many(["order:42", "order:7"]).manager(&locks).run(async {
        // One lock of both keys, and so a call of `audit` would be in it as well.
        Ok::<_, LockError>((audit_held(&locks, 42).await?, audit_held(&locks, 7).await?))
    });
    assert_eq!(all.await, Ok((true, true)));
    assert!(!held(&locks, "order:42").await);
}

#[tokio::test]
async fn a_caller_without_the_lock_is_told_which_one() {
    let locks = LockManager::memory();
    let alone = AssertUnwindSafe(audit_held(&locks, 42)).catch_unwind().await;
    assert_eq!(
        said(alone.unwrap_err()),
        "`audit_held` is for callers that hold the lock `order:42`, and this one does not: call \
         `audit`"
    );
    // Neither does the lock on another order help, nor a lock that another task holds.
    let guard = probe(&locks, "order:42").acquire().await.unwrap();
    let other = Lock::new("order:7").manager(&locks).run(async {
        let wrong = AssertUnwindSafe(audit_held(&locks, 42)).catch_unwind().await;
        Ok::<_, LockError>(said(wrong.unwrap_err()))
    });
    assert!(other.await.unwrap().contains("`order:42`"));
    guard.release().await.unwrap();
}

#[distributed_lock(
    key = ["account:<from>", "account:<to>"],
    unlocked = transfer_held,
    when = cents > 0,
    manager = locks
)]
fn transfer(
    locks: &LockManager,
    (from, to): (u64, u64),
    cents: u64,
) -> Result<(u64, bool), LockError> {
    Ok((from + to + cents, held_blocking(locks, "account:7")))
}

#[test]
fn of_several_keys_all_are_held() {
    let locks = LockManager::memory();
    assert_eq!(transfer(&locks, (3, 7), 100), Ok((110, true)));
    let under = |keys: &[&str]| {
        let lock = Lock::many(keys.iter().copied()).manager(&locks);
        let run = || lock.run_blocking(|| transfer_held(&locks, (3, 7), 100));
        catch_unwind(AssertUnwindSafe(run)).map_err(said)
    };
    assert_eq!(under(&["account:3", "account:7", "books"]), Ok(Ok((110, true))));
    assert!(under(&["account:3"]).unwrap_err().contains("`account:7`"));
    assert!(under(&["account:7"]).unwrap_err().contains("`account:3`"));
}

#[test]
fn where_the_lock_is_not_needed_it_is_not_asserted() {
    let locks = LockManager::memory();
    assert_eq!(transfer_held(&locks, (3, 7), 0), Ok((10, false)));
    let alone = catch_unwind(AssertUnwindSafe(|| transfer_held(&locks, (3, 7), 1)));
    assert!(said(alone.unwrap_err()).contains("`account:3`"));
}

#[distributed_lock(
    key = keys(ids.iter().map(|id| format!("order:{id}"))),
    unlocked = count_held,
    manager = locks
)]
async fn count(locks: &LockManager, ids: Vec<u64>) -> Result<usize, LockError> {
    Ok(ids.len())
}

#[tokio::test]
async fn the_keys_of_an_iterator_are_asserted() {
    let locks = LockManager::memory();
    let both = Lock::many(["order:1", "order:2"]).manager(&locks);
    assert_eq!(both.run(count_held(&locks, vec![1, 2])).await, Ok(2));
    assert_eq!(count(&locks, vec![1, 2]).await, Ok(2));
    let one = Lock::new("order:1").manager(&locks).run(count_held(&locks, vec![1, 2]));
    assert!(said(AssertUnwindSafe(one).catch_unwind().await.unwrap_err()).contains("`order:2`"));
}

mod orders {
    use super::*;

    pub struct Orders<T> {
        pub locks: LockManager,
        pub tenant: T,
        pub audited: Vec<u64>,
    }

    impl<T: Display + Send + Sync> Orders<T> {
        /// Audits.
        #[distributed_lock(
            key = "<self.tenant>:<id>", unlocked = audit_held, manager = self.locks
        )]
        #[tracing::instrument(skip_all)]
        pub async fn audit<'a>(&'a mut self, mut id: u64) -> Result<&'a [u64], LockError> {
            id += 1;
            self.audited.push(id);
            Ok(&self.audited)
        }

        #[distributed_lock(
            key = "<self.tenant>:<id>",
            unlocked = first_held,
            on_busy = fallback(Self::none::<N>),
            manager = self.locks
        )]
        pub(super) fn first<const N: usize>(
            &mut self,
            id: u64,
        ) -> Result<impl Display + use<'_, T, N>, LockError>
        where
            T: Clone,
        {
            self.audited.push(id);
            Ok(format!("{:?}", self.audited.iter().take(N).collect::<Vec<_>>()))
        }

        fn none<const N: usize>(&mut self, _: u64) -> Result<String, LockError> {
            Ok(String::new())
        }

        /// It has no `self`, so neither function could call the other one by its name alone.
        #[distributed_lock(key = "new:<tenant>", unlocked = new_held, manager = locks)]
        pub async fn new(locks: LockManager, tenant: T) -> Result<Self, LockError> {
            Ok(Self { locks, tenant, audited: Vec::new() })
        }

        #[distributed_lock(key = "<self.tenant>", unlocked = boxed_held, manager = self.locks)]
        pub fn boxed(&self, id: u64) -> BoxFuture<'_, Result<u64, LockError>> {
            Box::pin(async move { Ok(id) })
        }
    }

    pub trait Audit {
        fn locks(&self) -> &LockManager;

        #[distributed_lock(key = "default:<id>", unlocked = run_held, manager = self.locks())]
        async fn run(&self, id: u64) -> Result<u64, LockError> {
            Ok(id)
        }
    }

    impl<T> Audit for Orders<T> {
        fn locks(&self) -> &LockManager {
            &self.locks
        }
    }
}

#[tokio::test]
async fn methods_have_it_too() {
    use orders::{Audit, Orders};
    let locks = LockManager::memory();
    let under = |key: &str| Lock::new(key).manager(&locks);
    let made = under("new:acme").run(Orders::new_held(locks.clone(), "acme")).await;
    let mut orders = made.unwrap();
    assert_eq!(orders.audit(41).await.unwrap(), [42]);
    assert_eq!(under("acme:6").run(orders.audit_held(6)).await.unwrap(), [42, 7]);
    assert_eq!(under("acme").run(orders.boxed_held(8)).await, Ok(8));
    assert_eq!(orders.boxed(8).await, Ok(8));
    assert_eq!(under("default:9").run(orders.run_held(9)).await, Ok(9));
    assert_eq!(orders.run(9).await, Ok(9));
    let alone = AssertUnwindSafe(orders.boxed_held(8)).catch_unwind().await;
    assert!(said(alone.unwrap_err()).contains("`acme`"));
    assert!(Orders::new(locks.clone(), "other").await.is_ok());
}

#[test]
fn sync_methods_have_it_too() {
    let locks = LockManager::memory();
    let mut orders = orders::Orders { locks: locks.clone(), tenant: "acme", audited: vec![1] };
    assert_eq!(orders.first::<1>(2).unwrap().to_string(), "[1]");
    let held = Lock::new("acme:3").manager(&locks);
    let first = held.run_blocking(|| Ok::<_, LockError>(orders.first_held::<2>(3)?.to_string()));
    assert_eq!(first.unwrap(), "[1, 2]");
    let alone = catch_unwind(AssertUnwindSafe(|| orders.first_held::<2>(3).map(drop)));
    assert!(said(alone.unwrap_err()).contains("`acme:3`"));
}

/// The assertion is that of the function without the lock.
#[tokio::test]
async fn the_locked_function_asserts_nothing() {
    #[distributed_lock(key = key(), unlocked = audit_held, manager = locks)]
    async fn audit(locks: &LockManager) -> Result<u32, LockError> {
        Ok(7)
    }
    fn key() -> String {
        use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
        static CALLS: AtomicU32 = AtomicU32::new(0);
        format!("order:{}", CALLS.fetch_add(1, SeqCst))
    }
    let locks = LockManager::memory();
    assert_eq!(audit(&locks).await, Ok(7));
    // It was made once, and is made again here.
    assert_eq!(Lock::new("order:1").manager(&locks).run(audit_held(&locks)).await, Ok(7));
}

#[tokio::test]
async fn of_two_attributes_the_second_function_keeps_the_lock_of_the_other_one() {
    #[distributed_lock(key = "order:<id>", unlocked = audit_held, manager = locks)]
    #[distributed_lock(key = "desk:<id>", manager = locks)]
    async fn audit(locks: &LockManager, id: u64) -> Result<(bool, bool), LockError> {
        Ok((held(locks, "order:7").await, held(locks, "desk:7").await))
    }
    #[distributed_lock(key = "desk:<id>", manager = locks)]
    #[distributed_lock(key = "order:<id>", unlocked = book_held, manager = locks)]
    async fn book(locks: &LockManager, id: u64) -> Result<(bool, bool), LockError> {
        Ok((held(locks, "order:7").await, held(locks, "desk:7").await))
    }
    let locks = LockManager::memory();
    let order = || Lock::new("order:7").manager(&locks);
    assert_eq!(audit(&locks, 7).await, Ok((true, true)));
    assert_eq!(book(&locks, 7).await, Ok((true, true)));
    assert_eq!(order().run(audit_held(&locks, 7)).await, Ok((true, true)));
    assert_eq!(order().run(book_held(&locks, 7)).await, Ok((true, true)));
    let _desk = probe(&locks, "desk:7").acquire().await.unwrap();
    assert!(order().run(audit_held(&locks, 7)).await.unwrap_err().is_busy());
    assert!(order().run(book_held(&locks, 7)).await.unwrap_err().is_busy());
}

#[tokio::test]
async fn the_future_stays_send() {
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    #[distributed_lock(
        key = "order:<id.lock().unwrap()>", unlocked = show_held, manager = locks
    )]
    async fn show(locks: &LockManager, id: &Mutex<u64>) -> Result<bool, LockError> {
        tokio::task::yield_now().await;
        Ok(id.try_lock().is_ok())
    }
    let (locks, id) = (LockManager::memory(), Mutex::new(42));
    let lock = Lock::new("order:42").manager(&locks);
    assert!(assert_send(lock.run(show_held(&locks, &id))).await.unwrap());
    assert!(assert_send(show(&locks, &id)).await.unwrap());
}

#[test]
fn the_future_is_not_larger_than_that_of_the_locked_function() {
    let locks = LockManager::memory();
    let (with, without) = (size_of_val(&audit(&locks, 42)), size_of_val(&audit_held(&locks, 42)));
    assert!(without < with, "{without} and {with} bytes");
}
