//! The function of `on_lost` does not take a `Lost` and the function's value, and give the value.

use lockmacro_runtime::{LockError, Lost, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = rollback_later)]
async fn async_recovery(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = rollback_later)]
fn async_recovery_of_a_sync_function(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

async fn rollback_later(_: Lost, value: Result<u64, LockError>) -> Result<u64, LockError> {
    value
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = rollback_alone)]
async fn recovery_that_is_not_of_a_loss(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn rollback_alone(value: Result<u64, LockError>) -> Result<u64, LockError> {
    value
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = rollback_to_a_number)]
async fn recovery_with_another_result(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn rollback_to_a_number(_: Lost, value: Result<u64, LockError>) -> u64 {
    value.unwrap_or(0)
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = rollback_of_a_number)]
async fn recovery_with_another_value(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn rollback_of_a_number(_: Lost, value: u64) -> Result<u64, LockError> {
    Ok(value)
}

fn main() {}
