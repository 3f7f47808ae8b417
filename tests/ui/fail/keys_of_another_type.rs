use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = ["account:<from>", to], ttl = "300s")]
async fn transfer(from: u64, to: Option<u64>) -> Result<u64, LockError> {
    Ok(from + to.unwrap_or(0))
}

fn main() {}
