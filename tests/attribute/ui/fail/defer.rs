//! An argument cannot be stored for a job.

use lockmacro_runtime::{LockError, distributed_lock};
use serde::Serialize;

struct Note(u64);

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
async fn not_stored(id: u64, note: Note) -> Result<u64, LockError> {
    Ok(id + note.0)
}

#[derive(Serialize)]
struct WrittenNote(u64);

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
async fn not_read(id: u64, notes: Vec<WrittenNote>) -> Result<usize, LockError> {
    Ok(id as usize + notes.len())
}

fn main() {}
