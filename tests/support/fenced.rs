//! A lock with its fences in one call, for tests that compare the fences of many grants.

use futures::future::{BoxFuture, FutureExt as _};
use lockmacro_runtime::{Fence, Lock, LockError, LockGuard};

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
