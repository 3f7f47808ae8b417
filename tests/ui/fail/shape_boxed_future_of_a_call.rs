use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64) -> futures::future::BoxFuture<'static, Result<u64, LockError>> {
    Box::pin(work(id))
}

async fn work(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
