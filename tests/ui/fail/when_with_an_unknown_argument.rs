use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", when = !dry_run)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
