use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = flag.then_some("order:<id>").unwrap_or("x"), ttl = "300s")]
async fn audit(id: u64, flag: bool) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
