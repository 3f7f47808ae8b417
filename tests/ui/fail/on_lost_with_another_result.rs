use lockmacro_runtime::{LockError, Lost, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = rollback)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn rollback(_: Lost, value: Result<u64, LockError>) -> u64 {
    value.unwrap_or(0)
}

fn main() {}
