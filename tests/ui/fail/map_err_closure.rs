use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s", map_err = |error| error.to_string())]
async fn audit(id: u64) -> Result<u64, String> {
    Ok(id)
}

fn main() {}
