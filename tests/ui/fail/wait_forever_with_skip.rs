use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", wait = forever, on_busy = skip)]
async fn audit(id: u64) -> Option<u64> {
    Some(id)
}

fn main() {}
