use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "orders", unlocked = audit_held)]
#[tokio::test]
async fn audit() -> Result<(), lockmacro_runtime::LockError> {
    Ok(())
}

fn main() {}
