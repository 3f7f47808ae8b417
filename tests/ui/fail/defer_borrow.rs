use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
async fn audit(id: u64, note: &str) -> Result<u64, LockError> {
    Ok(id + note.len() as u64)
}

fn main() {}
