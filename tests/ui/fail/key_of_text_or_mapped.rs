use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = tenant.map_or("order:<id>", |name| name), ttl = "300s")]
async fn audit(id: u64, tenant: Option<&str>) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
