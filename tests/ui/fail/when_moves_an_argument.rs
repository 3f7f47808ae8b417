use lockmacro_runtime::{LockError, distributed_lock};

struct Order {
    id: u64,
}

impl Order {
    fn into_urgent(self) -> bool {
        self.id > 9
    }
}

#[distributed_lock(key = "orders", ttl = "300s", when = order.into_urgent())]
async fn audit(order: Order) -> Result<u64, LockError> {
    Ok(order.id)
}

fn main() {}
