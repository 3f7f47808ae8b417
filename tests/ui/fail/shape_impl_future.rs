use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64) -> impl Future<Output = Result<u64, LockError>> {
    async move { Ok(id) }
}

fn main() {}
