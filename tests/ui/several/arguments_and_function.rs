use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = "order:<id>",
    tll = "300s" // wrong
)]
const fn audit(id: u64) -> Result<u64, LockError> { // wrong
    Ok(id)
}

fn main() {}
