use lockmacro_runtime::{LockError, distributed_lock};

struct Failure;

impl From<LockError> for Failure {
    fn from(_: LockError) -> Self {
        Failure
    }
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
async fn audit(id: u64) -> Result<u64, Failure> {
    Ok(id)
}

fn main() {}
