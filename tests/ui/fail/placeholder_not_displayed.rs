use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<ids>", ttl = "300s")]
async fn audit(ids: Vec<u64>) -> Result<usize, LockError> {
    Ok(ids.len())
}

fn main() {}
