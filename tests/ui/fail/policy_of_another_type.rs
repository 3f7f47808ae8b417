use std::time::Duration;

use lockmacro_runtime::{LockError, distributed_lock};

const ORDERS: Duration = Duration::from_secs(30);

#[distributed_lock(key = "order:<id>", policy = ORDERS)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
