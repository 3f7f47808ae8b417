use lockmacro_runtime::{LockError, distributed_lock};

pub struct Orders;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
impl Orders {
    pub async fn audit(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn main() {}
