use lockmacro_runtime::{LockError, distributed_lock};
use serde::Serialize;

#[derive(Serialize)]
struct Note(u64);

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
async fn audit(id: u64, notes: Vec<Note>) -> Result<usize, LockError> {
    Ok(id as usize + notes.len())
}

fn main() {}
