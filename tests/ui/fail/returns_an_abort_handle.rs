use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit(id: u64) -> Result<tokio::task::AbortHandle, LockError> {
    Ok(tokio::spawn(async move { id }).abort_handle())
}

fn main() {}
