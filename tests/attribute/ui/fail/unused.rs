//! A name that the body does not use: the compiler's warning is at the name. And a check of a fence
//! that is made and not given to the database.

#![deny(warnings)]

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", guard = lock)]
async fn unused_guard(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", ttl = "300s", fence = fence)]
async fn unused_fence(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(
    key = ["account:<from>", "account:<to>"], ttl = "300s", fence = [debit, _credit],
)]
async fn unused_one_of_several_fences(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

#[distributed_lock(key = "order:<id>", ttl = "300s", guard = lock, fence = _fence)]
async fn a_check_that_the_database_never_sees(id: u64) -> Result<u64, LockError> {
    lock.fence_check()?;
    Ok(id)
}

fn main() {}
