use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit(id: u64, note: String) -> Result<&'static str, LockError> {
    let _ = id;
    Ok(note.as_str())
}

fn main() {}
