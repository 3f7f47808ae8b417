use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = [permits("printer"), "order:<id>"])]
async fn report(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
