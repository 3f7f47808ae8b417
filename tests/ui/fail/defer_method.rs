use lockmacro_runtime::{LockError, distributed_lock};

struct Shop;

impl Shop {
    #[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
    async fn audit(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

fn main() {}
