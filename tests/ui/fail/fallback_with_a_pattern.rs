use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = fallback(later))]
async fn audit((id, line): (u64, u64)) -> Result<u64, LockError> {
    Ok(id + line)
}

async fn later((id, line): (u64, u64)) -> Result<u64, LockError> {
    Ok(id + line)
}

fn main() {}
