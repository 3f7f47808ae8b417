//! The value of an argument is of another type.

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = id)]
async fn ttl_of_a_number(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", ttl = "300s", renew, max_hold = id)]
async fn max_hold_of_a_number(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", wait = id)]
async fn wait_of_a_number(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn limit() -> u64 {
    3
}

#[distributed_lock(key = "order:<id>", permits = limit())]
async fn permits_of_another_number(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", ttl = "300s", manager = id)]
async fn manager_of_a_number(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", map_err = id)]
async fn map_err_of_an_argument(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", on_lost = id)]
async fn on_lost_of_an_argument(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", on_busy = fallback(id))]
async fn fallback_of_an_argument(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
