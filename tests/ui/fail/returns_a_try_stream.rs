use lockmacro_runtime::{LockError, distributed_lock};

trait TryStream {}
impl TryStream for () {}

#[distributed_lock(key = "order:<id>", ttl = "30s")]
async fn lines(id: u64) -> Result<impl TryStream, LockError> {
    let _ = id;
    Ok(())
}

fn main() {}
