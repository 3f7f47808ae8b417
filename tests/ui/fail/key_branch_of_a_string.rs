use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = if id > 5 { String::from("order:<id>") } else { "order".into() }, ttl = "300s",
)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
