use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = "order:<id>", ttl = "300s", on_busy = skip, message = "order <id> is being audited",
)]
async fn audit(id: u64) -> Result<(), LockError> {
    drop(id);
    Ok(())
}

fn main() {}
