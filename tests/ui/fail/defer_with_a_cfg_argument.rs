use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", on_busy = defer("30s"))]
async fn audit(id: u64, #[cfg(unix)] desk: u64) -> Result<u64, LockError> {
    Ok(id + desk)
}

fn main() {}
