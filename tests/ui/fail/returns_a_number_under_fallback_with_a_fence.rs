use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = fallback(later), fence = _fence)]
async fn audit(id: u64) -> u64 {
    id
}

async fn later(id: u64) -> u64 {
    id
}

fn main() {}
