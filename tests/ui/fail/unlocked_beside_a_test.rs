use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "orders", unlocked = audit_held)]
#[tokio::test]
async fn audit() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
