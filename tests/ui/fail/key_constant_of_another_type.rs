use lockmacro_runtime::{LockError, distributed_lock};

const NUMBER: u64 = 5;

#[distributed_lock(key = NUMBER, ttl = "300s")]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
