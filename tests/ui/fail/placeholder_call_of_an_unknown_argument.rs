use lockmacro_runtime::{LockError, distributed_lock};

fn hash(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<hash(sn)>", ttl = "300s")]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
