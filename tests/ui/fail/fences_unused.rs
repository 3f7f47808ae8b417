#![deny(unused_variables)]
use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = ["account:<from>", "account:<to>"], ttl = "300s", fence = [debit, _credit],
)]
async fn transfer(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

fn main() {}
