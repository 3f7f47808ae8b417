use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit() -> Result<u64, LockError> {
    Ok(1)
}

fn main() {}
