//! An expression is no key, or gives none.

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = id, ttl = "300s")]
async fn argument(id: Option<u64>) -> Result<u64, LockError> {
    Ok(id.unwrap_or(0))
}

const NUMBER: u64 = 5;

#[distributed_lock(key = NUMBER, ttl = "300s")]
async fn constant(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = ["account:<from>", to], ttl = "300s")]
async fn one_of_several_keys(from: u64, to: Option<u64>) -> Result<u64, LockError> {
    Ok(from + to.unwrap_or(0))
}

#[distributed_lock(key = keys([from, to].into_iter()), ttl = "300s")]
async fn function_keys_of_numbers(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

#[distributed_lock(key = keys(from), ttl = "300s")]
async fn function_keys_of_no_iterator(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

fn main() {}
