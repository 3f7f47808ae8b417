use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    kye = "order:<id>", // wrong
    ttl = 5min, // wrong
    timeout = "5s", // wrong
    on_busy = retry, // wrong
    message = "" // wrong
)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
