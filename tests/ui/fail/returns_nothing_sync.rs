use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn audit(id: u64) {
    println!("{id}");
}

fn main() {}
