use lockmacro_runtime::{LockError, distributed_lock};

fn limit() -> u64 {
    3
}

#[distributed_lock(key = "order:<id>", permits = limit())]
async fn report(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
