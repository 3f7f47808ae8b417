//! Results for callers that find the lock busy: errors, skips, fallbacks and types of their own.

use std::sync::atomic::{AtomicU32, Ordering};

use lockmacro_runtime::{LockError, LockManager, LockOutcome, distributed_lock};

use crate::{OrderError, assert_locked, held, probe};

#[tokio::test]
async fn busy_is_an_error_with_the_message() {
    #[distributed_lock(
        key = "order:<id>", ttl = "30s", manager = locks,
        message = "order {<id>} is being audited by <who.to_uppercase()> << now",
    )]
    async fn audit(locks: &LockManager, id: u64, who: &str) -> Result<bool, OrderError> {
        Ok(held(locks, "order:42").await && who == "ann")
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "order:42", audit(&locks, 42, "ann").await.unwrap());

    let _guard = probe(&locks, "order:42").acquire().await.unwrap();
    let error = audit(&locks, 42, "ann").await.unwrap_err();
    assert!(error.is_busy());
    let OrderError::Lock(LockError::Busy { message, key, .. }) = error else { panic!("{error:?}") };
    assert_eq!(message.as_deref(), Some("order {42} is being audited by ANN < now"));
    assert_eq!(key.to_string(), "order:42");
}

static RUNS: AtomicU32 = AtomicU32::new(0);

async fn run(locks: &LockManager) {
    assert!(held(locks, "job").await);
    RUNS.fetch_add(1, Ordering::Relaxed);
}

#[distributed_lock(key = "job", ttl = "30s", on_busy = skip, manager = locks)]
async fn skip_unit(locks: &LockManager) {
    run(locks).await;
}

#[distributed_lock(key = "job", ttl = "30s", on_busy = skip, manager = locks)]
async fn skip_option(locks: &LockManager) -> Option<u32> {
    run(locks).await;
    Some(1)
}

#[distributed_lock(key = "job", ttl = "30s", on_busy = skip, manager = locks)]
async fn skip_result(locks: &LockManager) -> Result<(), OrderError> {
    run(locks).await;
    Ok(())
}

#[distributed_lock(key = "job", ttl = "30s", on_busy = skip, manager = locks)]
async fn skip_result_of_option(
    locks: &LockManager,
) -> Result<Option<Box<dyn ToString>>, OrderError> {
    run(locks).await;
    Ok(Some(Box::new(1)))
}

#[tokio::test]
async fn busy_is_skipped_in_four_return_types() {
    let locks = LockManager::isolated_memory();
    skip_unit(&locks).await;
    assert_eq!(skip_option(&locks).await, Some(1));
    skip_result(&locks).await.unwrap();
    assert_eq!(skip_result_of_option(&locks).await.unwrap().unwrap().to_string(), "1");
    assert_eq!(RUNS.load(Ordering::Relaxed), 4);
    assert!(!held(&locks, "job").await);

    let _guard = probe(&locks, "job").acquire().await.unwrap();
    skip_unit(&locks).await;
    assert_eq!(skip_option(&locks).await, None);
    skip_result(&locks).await.unwrap();
    assert!(skip_result_of_option(&locks).await.unwrap().is_none());
    assert_eq!(RUNS.load(Ordering::Relaxed), 4);
}

mod later {
    use super::*;

    #[distributed_lock(
        key = "order:<id>", ttl = "30s", on_busy = fallback(queue::later), manager = locks,
    )]
    async fn assign(
        locks: &LockManager,
        id: u64,
        mut warehouse: String,
    ) -> Result<String, OrderError> {
        warehouse.push_str(if held(locks, "order:42").await { " now" } else { " unlocked" });
        Ok(warehouse)
    }

    mod queue {
        use super::*;

        pub async fn later(
            _: &LockManager,
            id: u64,
            warehouse: String,
        ) -> Result<String, OrderError> {
            Ok(format!("{warehouse} later {id}"))
        }
    }

    #[tokio::test]
    async fn busy_calls_another_function() {
        let locks = LockManager::isolated_memory();
        assert_eq!(assign(&locks, 42, "north".to_owned()).await.unwrap(), "north now");
        let guard = probe(&locks, "order:42").acquire().await.unwrap();
        assert_eq!(assign(&locks, 42, "north".to_owned()).await.unwrap(), "north later 42");
        guard.release().await.unwrap();
        locks.shutdown(std::time::Duration::from_secs(5)).await.unwrap();
        assert!(matches!(
            assign(&locks, 42, String::new()).await,
            Err(OrderError::Lock(error)) if !error.is_busy()
        ));
    }
}

struct Orders {
    locks: LockManager,
    seen: Vec<&'static str>,
}

impl Orders {
    #[distributed_lock(
        key = "order", ttl = "30s", on_busy = fallback(Self::later), manager = self.locks,
    )]
    async fn audit<T: Into<u64>>(&mut self, id: T) -> Result<u64, LockError> {
        self.seen.push(if held(&self.locks, "order").await { "now" } else { "unlocked" });
        Ok(id.into())
    }

    async fn later<T: Into<u64>>(&mut self, id: T) -> Result<u64, LockError> {
        self.seen.push("later");
        Ok(id.into() + 100)
    }
}

#[tokio::test]
async fn busy_calls_another_method() {
    let mut orders = Orders { locks: LockManager::isolated_memory(), seen: Vec::new() };
    assert_eq!(orders.audit(1_u32).await.unwrap(), 1);
    let _guard = probe(&orders.locks, "order").acquire().await.unwrap();
    assert_eq!(orders.audit(1_u32).await.unwrap(), 101);
    assert_eq!(orders.seen, ["now", "later"]);
}

#[derive(Debug, PartialEq)]
enum Response {
    Ok(bool),
    Locked,
    Failed,
}

impl LockOutcome for Response {
    fn from_lock_error(error: LockError) -> Self {
        if error.is_busy() { Self::Locked } else { Self::Failed }
    }

    fn after_loss(self, _: LockError) -> Self {
        Self::Failed
    }
}

#[tokio::test]
async fn a_custom_type_says_busy() {
    #[distributed_lock(key = "order:<id>", ttl = "30s", manager = locks)]
    async fn handler(locks: &LockManager, id: u64) -> Response {
        Response::Ok(held(locks, "order:42").await)
    }
    let locks = LockManager::isolated_memory();
    assert_locked!(&locks, "order:42", handler(&locks, 42).await == Response::Ok(true));
    let guard = probe(&locks, "order:42").acquire().await.unwrap();
    assert_eq!(handler(&locks, 42).await, Response::Locked);
    guard.release().await.unwrap();
    assert_eq!(handler(&locks, 42).await, Response::Ok(true));
    locks.shutdown(std::time::Duration::from_secs(5)).await.unwrap();
    assert_eq!(handler(&locks, 42).await, Response::Failed);
}
