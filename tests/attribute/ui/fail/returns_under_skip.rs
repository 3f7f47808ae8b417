//! A function under `on_busy = skip` returns what cannot say that the call was skipped.

use lockmacro_runtime::{LockError, Lost, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = skip)]
fn number(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = skip, guard = _lock)]
async fn number_with_a_guard(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = skip, on_lost = rollback)]
fn number_with_recovery(id: u64) -> u64 {
    id
}

fn rollback(_: Lost, value: u64) -> u64 {
    value
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = skip)]
async fn result_of_a_number(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

pub struct OrderError;

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = skip)]
pub async fn error_that_is_not_from_ours(id: u64) -> Result<(), OrderError> {
    if id == 0 { Err(OrderError) } else { Ok(()) }
}

fn main() {}
