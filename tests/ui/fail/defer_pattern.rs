use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
async fn audit((id, _): (u64, u64)) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
