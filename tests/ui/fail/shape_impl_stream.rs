use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64) -> impl futures::Stream<Item = u64> {
    futures::stream::iter([id])
}

fn main() {}
