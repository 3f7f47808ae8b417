use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = "order:<id>",
    lease = 300, // wrong
    on_busy = defer(
        "30s",
        attempts = 0, // wrong
        retries = 5 // wrong
    )
)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
