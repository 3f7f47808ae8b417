use lockmacro_runtime::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:<order.idd>", ttl = "300s")]
async fn audit(order: &Order) -> Result<u64, LockError> {
    Ok(order.id)
}

fn main() {}
