//! A fallback is not of the function's own type.

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = fallback(at_once))]
async fn not_async(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn at_once(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = fallback(to_text))]
async fn with_another_return_type(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

async fn to_text(id: u64) -> Result<String, LockError> {
    Ok(id.to_string())
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = fallback(of_half))]
async fn with_other_arguments(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

async fn of_half(id: u32) -> Result<u64, LockError> {
    Ok(id.into())
}

fn main() {}
