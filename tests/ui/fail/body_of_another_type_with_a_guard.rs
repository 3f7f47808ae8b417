use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", guard = _lock)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id.to_string())
}

fn main() {}
