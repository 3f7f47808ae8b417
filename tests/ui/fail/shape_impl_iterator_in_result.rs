use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit(id: u64) -> Result<impl Iterator<Item = u64>, LockError> {
    Ok(0..id)
}

fn main() {}
