use async_trait::async_trait;
use lockmacro_runtime::{LockError, distributed_lock};

struct Orders;

#[async_trait]
trait Audit {
    async fn audit(&self, id: u64) -> Result<u64, LockError>;
}

#[async_trait]
impl Audit for Orders {
    #[distributed_lock(key = "order:<id>", ttl = "300s", unlocked = audit_held)]
    async fn audit(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn main() {}
