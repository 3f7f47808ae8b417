use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", when = lines.len())]
async fn audit(id: u64, lines: &[u64]) -> Result<usize, LockError> {
    Ok(lines.len())
}

fn main() {}
