use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64, note: String) -> Result<usize, LockError> {
    std::thread::spawn(move || drop(note));
    Ok(note.len() + usize::from(id == 0))
}

fn main() {}
