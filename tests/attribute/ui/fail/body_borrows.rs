//! A body that breaks a rule of borrowing: the compiler says so as without the attribute.

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn borrows_an_argument_for_too_long(
    id: u64,
    note: String,
) -> Result<&'static str, LockError> {
    let _ = id;
    Ok(note.as_str())
}

#[distributed_lock(key = "order:<sn>", ttl = "300s")]
async fn uses_a_moved_argument(sn: String) -> Result<usize, LockError> {
    drop(sn);
    Ok(sn.len())
}

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn uses_a_moved_argument_in_a_sync_function(id: u64, note: String) -> Result<usize, LockError> {
    std::thread::spawn(move || drop(note));
    Ok(note.len() + usize::from(id == 0))
}

#[distributed_lock(key = "order:<id>", ttl = "300s", guard = lock)]
async fn gives_the_guard_back(id: u64) -> Result<u64, LockError> {
    lock.release().await?;
    Ok(id)
}

#[distributed_lock(key = "order:<id>", ttl = "300s", guard = lock)]
async fn moves_the_guard_into_a_task(id: u64) -> Result<u64, LockError> {
    tokio::spawn(async move { lock.check() });
    Ok(id)
}

fn main() {}
