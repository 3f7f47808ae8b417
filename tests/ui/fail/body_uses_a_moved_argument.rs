use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<sn>", ttl = "300s")]
async fn audit(sn: String) -> Result<usize, LockError> {
    drop(sn);
    Ok(sn.len())
}

fn main() {}
