use lockmacro_runtime::{LockError, distributed_lock};

struct Orders;

impl Orders {
    #[distributed_lock(key = "order:<id>", ttl = "300s", unlocked = Self::audit_held)]
    pub async fn audit(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn main() {}
