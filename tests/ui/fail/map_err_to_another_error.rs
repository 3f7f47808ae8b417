use lockmacro_runtime::{LockError, distributed_lock};

fn text(error: LockError) -> String {
    error.to_string()
}

#[distributed_lock(key = "order:<id>", ttl = "300s", map_err = text)]
async fn audit(id: u64) -> Result<u64, std::io::Error> {
    Ok(id)
}

fn main() {}
