use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = ["account:<from>", "account:<to>"], ttl = "9s", on_busy = defer("30s", unique),
)]
async fn transfer(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

fn main() {}
