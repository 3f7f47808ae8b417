//! A lock with its fences in one call, for tests that compare the fences of many grants, and the
//! answer of a database to a fence.

use futures::future::{BoxFuture, FutureExt as _};
use lockmacro_runtime::fence::LATE_SQLSTATE;
use lockmacro_runtime::{Fence, Lock, LockError, LockGuard};
use tokio_postgres::{Client, Error};

/// A guard, and the fence of each key, in the order in which the keys were given.
pub type Fenced = (LockGuard, Vec<Fence>);

/// Acquires a lock and its fences.
pub trait AcquireFenced {
    /// As `acquire`.
    fn acquire_fenced(&self) -> BoxFuture<'static, Result<Fenced, LockError>>;

    /// As `acquire_blocking`.
    fn acquire_fenced_blocking(&self) -> Result<Fenced, LockError>;
}

impl AcquireFenced for Lock {
    fn acquire_fenced(&self) -> BoxFuture<'static, Result<Fenced, LockError>> {
        let lock = self.clone().fenced();
        let acquire = async move {
            let guard = lock.acquire().await?;
            let fences = lock.fences(&guard);
            Ok((guard, fences))
        };
        acquire.boxed()
    }

    fn acquire_fenced_blocking(&self) -> Result<Fenced, LockError> {
        let lock = self.clone().fenced();
        let guard = lock.acquire_blocking()?;
        let fences = lock.fences(&guard);
        Ok((guard, fences))
    }
}

/// Whether a check lets a fence through, in a transaction of its own, which it commits.
pub async fn is_in_time(db: &Client, check: &str, key: &str, fence: i64) -> bool {
    db.batch_execute("BEGIN").await.expect("begun");
    let checked = db.execute(check, &[&key, &fence]).await;
    db.batch_execute("COMMIT").await.expect("ended");
    is_not_late(checked)
}

/// What a check has said. Panics for an error that says nothing about the fence.
pub fn is_not_late(checked: Result<u64, Error>) -> bool {
    match checked {
        Ok(_) => true,
        Err(error) if error.code().is_some_and(|code| code.code() == LATE_SQLSTATE) => false,
        Err(error) => panic!("{error:?}"),
    }
}
