//! A body gives another type than its function does.

use lockmacro_runtime::{LockError, Lost, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn in_an_async_function(id: u64) -> Result<u64, LockError> {
    let number = id + 1;
    Ok(number.to_string())
}

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn in_a_sync_function(id: u64) -> Result<u64, LockError> {
    let number = id + 1;
    Ok(number.to_string())
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = rollback)]
async fn under_recovery(id: u64) -> Result<u64, LockError> {
    Ok(id.to_string())
}

fn rollback(_: Lost, value: Result<u64, LockError>) -> Result<u64, LockError> {
    value
}

#[distributed_lock(key = "order:<id>", ttl = "300s", guard = _lock)]
async fn with_a_guard(id: u64) -> Result<u64, LockError> {
    Ok(id.to_string())
}

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn returned_early(id: u64) -> Result<u64, LockError> {
    if id == 0 {
        return id;
    }
    Ok(id)
}

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn without_a_result(id: u64) -> Result<u64, LockError> {
    drop(id);
}

fn main() {}
