use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "orders", unlocked = audit_held)]
#[tokio::main]
async fn main() -> Result<(), LockError> {
    Ok(())
}
