use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64) -> Result<u64, LockError> {
    let number = id + 1;
    Ok(number.to_string())
}

fn main() {}
