use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = ["account:<from>"; 2], ttl = "300s")]
async fn transfer(from: u64, to: u64) -> Result<u64, LockError> {
    Ok(from + to)
}

fn main() {}
