use lockmacro_runtime::distributed_lock;

#[distributed_lock(
    key = "order:<id>", ttl = "300s", on_busy = skip, map_err = std::io::Error::other,
)]
async fn audit(id: u64) {
    let _ = id;
}

fn main() {}
