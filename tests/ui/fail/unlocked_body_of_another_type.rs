use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", when = id > 9, unlocked = audit_held)]
pub async fn audit(id: u64) -> Result<u64, LockError> {
    id
}

fn main() {}
