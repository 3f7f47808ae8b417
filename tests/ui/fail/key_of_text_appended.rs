use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(
    key = if id > 5 {
        "large:<id>"
    } else {
        let mut key = String::from("order");
        key += ":<id>";
        key
    },
    ttl = "300s"
)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
