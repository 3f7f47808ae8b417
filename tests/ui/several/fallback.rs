use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = "order:<sn>", // wrong
    on_busy = fallback(later)
)]
async fn audit(
    id: u64,
    (line, count): (u64, u64), // wrong
) -> Result<u64, LockError> {
    Ok(id + line + count)
}

async fn later(id: u64, line: (u64, u64)) -> Result<u64, LockError> {
    Ok(id + line.0)
}

fn main() {}
