use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
async fn audit<T: ToString>(id: u64, note: T) -> Result<usize, LockError> {
    Ok(id as usize + note.to_string().len())
}

fn main() {}
