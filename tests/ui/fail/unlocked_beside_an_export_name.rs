use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "orders", unlocked = audit_held)]
#[unsafe(export_name = "audit")]
pub fn audit() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
