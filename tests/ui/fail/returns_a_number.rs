use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit(id: u64) -> u64 {
    id
}

fn main() {}
