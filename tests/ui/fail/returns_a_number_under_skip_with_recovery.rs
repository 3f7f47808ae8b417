use lockmacro_runtime::{Lost, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = skip, on_lost = rollback)]
fn audit(id: u64) -> u64 {
    id
}

fn rollback(_: Lost, value: u64) -> u64 {
    value
}

fn main() {}
