use lockmacro_runtime::{LockError, LockPolicy, distributed_lock};

#[distributed_lock(key = "order:<id>", policy = policy)]
async fn audit(id: u64, policy: LockPolicy) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
