use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", tll = "300s")]
async fn audit(id: u64, desk: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
