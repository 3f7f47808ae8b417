use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
mod orders {}

fn main() {}
