use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = name.unwrap_or("order:<id>"), ttl = "300s")]
async fn audit(id: u64, name: Option<&str>) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
