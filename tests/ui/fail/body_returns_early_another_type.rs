use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit(id: u64) -> Result<u64, LockError> {
    if id == 0 {
        return id;
    }
    Ok(id)
}

fn main() {}
