use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
pub trait Audit {}

fn main() {}
