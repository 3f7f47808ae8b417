#![deny(warnings)]
use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", unlocked = audit_held)]
pub async fn audit(id: u64, note: String) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    let _ = (audit(7, String::new()), audit_held(7, String::new()));
}
