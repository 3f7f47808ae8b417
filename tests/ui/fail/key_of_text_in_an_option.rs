use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = Some("order:<id>").unwrap(), ttl = "300s")]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
