use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64) -> std::pin::Pin<Box<dyn Future<Output = Result<u64, LockError>>>> {
    let id = id + 1;
    Box::pin(async move { Ok(id) })
}

fn main() {}
