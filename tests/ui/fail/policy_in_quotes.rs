use lockmacro_runtime::{LockError, LockPolicy, distributed_lock};

const ORDERS: LockPolicy = LockPolicy::new();

#[distributed_lock(key = "order:<id>", policy = "ORDERS")]
async fn audit(id: u64) -> Result<u64, LockError> {
    let _ = ORDERS;
    Ok(id)
}

fn main() {}
