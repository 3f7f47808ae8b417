use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = [shared("rates:<day>"), "order:<id>"])]
async fn report(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
