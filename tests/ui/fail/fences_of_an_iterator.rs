use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = keys([from, to].iter().map(u64::to_string)), ttl = "300s", fence = [debit, credit],
)]
async fn transfer(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

fn main() {}
