use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<sn>", ttl = "300s", unlocked = audit_held)]
pub async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

pub async fn all() -> Result<u64, LockError> {
    audit_held(7).await
}

fn main() {}
