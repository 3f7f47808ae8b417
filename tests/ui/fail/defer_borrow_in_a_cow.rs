use std::borrow::Cow;

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
fn audit(id: u64, note: Cow<str>) -> Result<u64, LockError> {
    Ok(id + note.len() as u64)
}

fn main() {}
