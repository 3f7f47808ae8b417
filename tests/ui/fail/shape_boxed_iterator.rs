use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64) -> Result<Box<dyn Iterator<Item = u64>>, LockError> {
    Ok(Box::new(0..id))
}

fn main() {}
