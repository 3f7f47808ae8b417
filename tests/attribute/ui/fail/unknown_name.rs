//! An argument names what is not there.

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = fallback(later))]
async fn in_fallback(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = retry)]
async fn in_on_lost(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", permits = many)]
async fn in_permits(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<hash(id)>", ttl = "300s")]
async fn called_in_a_placeholder(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "<Self::NAME>:<id>", ttl = "300s")]
async fn self_without_an_impl(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
