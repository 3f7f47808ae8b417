use lockmacro_runtime::distributed_lock;

pub struct OrderError;

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = skip)]
pub async fn audit(id: u64) -> Result<(), OrderError> {
    if id == 0 { Err(OrderError) } else { Ok(()) }
}

fn main() {}
