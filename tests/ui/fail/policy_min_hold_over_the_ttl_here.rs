use std::time::Duration;

use lockmacro_runtime::{LockError, LockPolicy, distributed_lock};

const ORDERS: LockPolicy =
    LockPolicy::new().ttl(Duration::from_secs(30)).min_hold(Duration::from_secs(20));

#[distributed_lock(key = "order:<id>", policy = ORDERS, ttl = "10s")]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
