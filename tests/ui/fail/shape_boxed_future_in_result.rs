use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64) -> Result<futures::future::BoxFuture<'static, u64>, LockError> {
    Ok(Box::pin(async move { id }))
}

fn main() {}
