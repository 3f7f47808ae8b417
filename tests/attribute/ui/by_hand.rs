//! Bodies by hand whose error type cannot carry the errors of the lock.

use lockmacro_runtime::Lock;

pub struct OrderError;

pub async fn try_run(lock: &Lock) -> Result<Option<u64>, OrderError> {
    lock.try_run(async { Ok::<u64, OrderError>(7) }).await
}

pub fn try_run_blocking(lock: &Lock) -> Result<Option<u64>, OrderError> {
    lock.try_run_blocking(|| Ok::<u64, OrderError>(7))
}

fn main() {}
