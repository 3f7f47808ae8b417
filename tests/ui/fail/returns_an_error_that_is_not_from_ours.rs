use lockmacro_runtime::distributed_lock;

pub struct OrderError;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
pub async fn audit(id: u64) -> Result<u64, OrderError> {
    if id == 0 { Err(OrderError) } else { Ok(id) }
}

fn main() {}
