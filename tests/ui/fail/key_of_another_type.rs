use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = id, ttl = "300s")]
async fn audit(id: Option<u64>) -> Result<u64, LockError> {
    Ok(id.unwrap_or(0))
}

fn main() {}
