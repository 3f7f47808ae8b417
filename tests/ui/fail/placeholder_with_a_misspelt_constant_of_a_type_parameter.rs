use lockmacro_runtime::{LockError, distributed_lock};

trait Kind {
    const NAME: &str;
}

#[distributed_lock(key = "<T::NAM>:<id>", ttl = "300s")]
async fn audit<T: Kind>(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
