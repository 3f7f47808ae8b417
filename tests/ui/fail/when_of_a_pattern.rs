use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", when = let Some(_) = tenant)]
async fn audit(id: u64, tenant: Option<&str>) -> Result<usize, LockError> {
    Ok(tenant.map_or(0, str::len))
}

fn main() {}
