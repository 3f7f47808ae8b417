use lockmacro_runtime::{LockError, distributed_lock};

struct Note(u64);

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
async fn audit(id: u64, note: Note) -> Result<u64, LockError> {
    Ok(id + note.0)
}

fn main() {}
