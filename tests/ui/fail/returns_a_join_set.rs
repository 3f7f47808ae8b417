use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit(id: u64) -> Result<tokio::task::JoinSet<u64>, LockError> {
    Ok(tokio::task::JoinSet::from_iter([async move { id }]))
}

fn main() {}
