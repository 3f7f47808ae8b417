use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", policy = ORDERS)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
