use lockmacro_runtime::{LockError, distributed_lock};

struct Order(u64);

impl Order {
    fn number(&self) -> u64 {
        self.0
    }
}

#[distributed_lock(key = "order:<order.numbr()>", ttl = "300s")]
async fn audit(order: &Order) -> Result<u64, LockError> {
    Ok(order.number())
}

fn main() {}
