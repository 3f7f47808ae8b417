use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = keys(std::iter::once("order:<id>")), ttl = "300s")]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
