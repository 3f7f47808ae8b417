use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "orders", unlocked = audit_held)]
fn main() -> Result<(), LockError> {
    Ok(())
}
