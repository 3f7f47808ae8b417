use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64) -> impl Iterator<Item = u64> {
    0..id
}

fn main() {}
