//! Keys, durations and managers of every form.

use std::time::Duration;

use lockmacro_runtime::{LockError, LockKey, LockManager, distributed_lock};

use crate::{assert_locked, held};

struct Order {
    sn: &'static str,
    lines: Vec<(u32, String)>,
}

const LEASE: Duration = Duration::from_secs(30);

fn order_key(order: &Order) -> LockKey {
    LockKey::template("order:<sn>").literal("order:").value(order.sn).into()
}

#[tokio::test]
async fn expressions() {
    #[distributed_lock(key = order_key(order), ttl = LEASE, manager = locks)]
    async fn by_function(locks: &LockManager, order: &Order) -> Result<bool, LockError> {
        Ok(held(locks, "order:SO-1").await && order.lines.len() == 1)
    }
    #[distributed_lock(key = format!("{{order:{}}}", order.sn), ttl = Duration::from_secs(30), manager = locks)]
    async fn by_macro(locks: &LockManager, order: Order) -> Result<bool, LockError> {
        Ok(held(locks, "{order:SO-1}").await && order.lines.len() == 1)
    }
    #[distributed_lock(key = key, ttl = *ttl, manager = (locks))]
    async fn by_argument(
        locks: &LockManager,
        key: &LockKey,
        ttl: &Duration,
    ) -> Result<bool, LockError> {
        Ok(held(locks, key.as_str()).await)
    }
    let locks = LockManager::memory();
    let order = Order { sn: "SO-1", lines: vec![(1, String::new())] };
    assert_locked!(&locks, "order:SO-1", by_function(&locks, &order).await.unwrap());
    assert_locked!(
        &locks,
        "order:SO-1",
        by_argument(&locks, &order_key(&order), &LEASE).await.unwrap()
    );
    assert_locked!(&locks, "{order:SO-1}", by_macro(&locks, order).await.unwrap());
}

#[tokio::test]
async fn templates() {
    #[distributed_lock(
        key = "{<order.sn>}:<<<order.lines[*at].0>:<order.lines[0].1.to_lowercase()>",
        ttl = "30s",
        manager = locks
    )]
    async fn audit(locks: &LockManager, order: &Order, at: &usize) -> Result<bool, LockError> {
        Ok(held(locks, "{SO-1}:<7:ab%3Ac").await)
    }
    let locks = LockManager::memory();
    let order = Order { sn: "SO-1", lines: vec![(7, "AB:C".to_owned())] };
    assert_locked!(&locks, "{SO-1}:<7:ab%3Ac", audit(&locks, &order, &0).await.unwrap());
}

mod erp {
    pub mod locks {
        pub use lockmacro_runtime::*;
    }
}

#[tokio::test]
async fn a_runtime_under_another_path() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks, crate = crate::keys::erp::locks)]
    async fn audit(locks: &LockManager, id: u64) -> Result<bool, LockError> {
        Ok(held(locks, "order:42").await)
    }
    let locks = LockManager::memory();
    assert_locked!(&locks, "order:42", audit(&locks, 42).await.unwrap());
}

#[tokio::test]
async fn the_installed_manager() {
    #[distributed_lock(key = "order:<id>", ttl = "30s")]
    async fn audit(id: u64) -> Result<bool, LockError> {
        Ok(held(&LockManager::installed()?, "order:42").await)
    }
    assert!(matches!(audit(42).await, Err(LockError::NotInstalled)));
    let locks = LockManager::memory();
    locks.install().unwrap();
    assert_locked!(&locks, "order:42", audit(42).await.unwrap());
}

/// Names of ours and of the user do not meet.
#[tokio::test]
async fn arguments_may_have_any_name() {
    #[distributed_lock(key = "<lock>:<guard>:<error.len()>", ttl = "30s", manager = locks, on_busy = fallback(later))]
    async fn audit(
        locks: &LockManager,
        lock: u8,
        guard: u8,
        error: &str,
    ) -> Result<bool, LockError> {
        Ok(held(locks, "1:2:3").await && error == "abc" && lock + guard == 3)
    }
    async fn later(_: &LockManager, _: u8, guard: u8, error: &str) -> Result<bool, LockError> {
        Ok(guard == 0 && error.is_empty())
    }
    let locks = LockManager::memory();
    assert_locked!(&locks, "1:2:3", audit(&locks, 1, 2, "abc").await.unwrap());
}
