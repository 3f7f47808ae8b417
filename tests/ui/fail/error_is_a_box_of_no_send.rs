use lockmacro_runtime::distributed_lock;

type Failure = Box<dyn std::error::Error>;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit(id: u64) -> Result<u64, Failure> {
    Ok(id)
}

fn main() {
    tokio::spawn(audit(1));
}
