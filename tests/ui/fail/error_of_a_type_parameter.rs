use lockmacro_runtime::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
pub async fn audit<E>(id: u64) -> Result<u64, E> {
    Ok(id)
}

fn main() {}
