use lockmacro_runtime::{LockError, distributed_lock};

#[async_trait::async_trait]
pub trait Audit {
    async fn audit(&self, order: (u64, u64)) -> Result<u64, LockError>;
}

#[async_trait::async_trait]
impl Audit for () {
    #[distributed_lock(key = "order:<id>", ttl = "300s")]
    async fn audit(&self, (id, line): (u64, u64)) -> Result<u64, LockError> {
        Ok(id + line)
    }
}

fn main() {}
