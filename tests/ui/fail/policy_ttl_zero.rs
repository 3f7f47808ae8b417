use std::time::Duration;

use lockmacro_runtime::{LockError, LockPolicy, distributed_lock};

const ORDERS: LockPolicy = LockPolicy::new().ttl(Duration::ZERO);

#[distributed_lock(key = "order:<id>", policy = ORDERS)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
