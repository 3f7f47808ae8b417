use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = {
        let mut key = String::from("order");
        key.push_str(":<id>");
        key
    },
    ttl = "300s"
)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
