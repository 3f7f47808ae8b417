use std::time::Duration;

use lockmacro_runtime::{LockError, LockPolicy, distributed_lock};

const ORDERS: LockPolicy = LockPolicy::new().ttl(Duration::from_secs(30));

#[distributed_lock(key = "order:<id>", policy = ORDERS, max_hold = "10m")]
fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
