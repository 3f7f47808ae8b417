use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", shared, permits = 3)]
async fn report(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
