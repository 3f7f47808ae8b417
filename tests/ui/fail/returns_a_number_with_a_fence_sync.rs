use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s", fence = _fence)]
fn audit(id: u64) -> u64 {
    id
}

fn main() {}
