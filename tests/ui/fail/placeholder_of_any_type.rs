use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>")]
pub async fn audit<T>(id: T) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
