use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = ["account:<from>", "account:<to>"], ttl = "300s", guard = lock, fence = [debit, lock],
)]
async fn transfer(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

fn main() {}
