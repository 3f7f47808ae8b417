use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit(id: u64) -> Result<std::thread::JoinHandle<u64>, LockError> {
    Ok(std::thread::spawn(move || id))
}

fn main() {}
