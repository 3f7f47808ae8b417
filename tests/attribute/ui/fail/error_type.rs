//! The error of a function does not do what the attribute or a task needs it for.

use lockmacro_runtime::{LockError, distributed_lock};

pub struct OrderError;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
pub async fn not_from_ours(id: u64) -> Result<u64, OrderError> {
    if id == 0 { Err(OrderError) } else { Ok(id) }
}

#[distributed_lock(key = "order:<id>", ttl = "300s")]
pub fn of_another_crate(id: u64) -> Result<u64, std::io::Error> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", ttl = "300s")]
pub async fn of_a_type_parameter<E>(id: u64) -> Result<u64, E> {
    Ok(id)
}

struct Failure;

impl From<LockError> for Failure {
    fn from(_: LockError) -> Self {
        Failure
    }
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
async fn not_displayed_under_defer(id: u64) -> Result<u64, Failure> {
    Ok(id)
}

type AnyFailure = Box<dyn std::error::Error>;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn a_box_of_no_send(id: u64) -> Result<u64, AnyFailure> {
    Ok(id)
}

fn main() {
    tokio::spawn(a_box_of_no_send(1));
}
