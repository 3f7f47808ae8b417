use lockmacro::distributed_lock;

#[distributed_lock(key = "order:<id>", ttl = "300s")]
pub async fn audit(id: u64) -> Result<u64, String> {
    Ok(id)
}
