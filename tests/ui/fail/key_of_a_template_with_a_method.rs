use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>".to_string(), ttl = "30s")]
async fn audit(id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
