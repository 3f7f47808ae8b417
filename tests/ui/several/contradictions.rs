use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = "order:{id}", // wrong
    ttl = "300s",
    max_hold = "10m", // wrong
    min_hold = "10m", // wrong
    wait = forever,
    on_busy = skip, // wrong
    on_lost = cancel, // wrong
    guard = id, // wrong
    message = "order <id> is being audited" // wrong
)]
fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
