use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", guard = lock)]
async fn audit(id: u64) -> Result<u64, LockError> {
    tokio::spawn(async move { lock.check() });
    Ok(id)
}

fn main() {}
