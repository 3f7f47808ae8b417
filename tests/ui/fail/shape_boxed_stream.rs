use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64) -> futures::stream::BoxStream<'static, u64> {
    Box::pin(futures::stream::iter([id]))
}

fn main() {}
