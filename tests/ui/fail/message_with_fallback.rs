use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = "order:<id>", ttl = "300s", message = "order <id> is being audited",
    on_busy = fallback(later),
)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

async fn later(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
