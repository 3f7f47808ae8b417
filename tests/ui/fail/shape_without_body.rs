use lockmacro_runtime::{LockError, distributed_lock};

trait Audit {
    #[distributed_lock(key = "order:<id>", ttl = "300s")]
    async fn audit(&self, id: u64) -> Result<u64, LockError>;
}

fn main() {}
