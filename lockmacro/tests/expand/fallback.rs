#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = fallback(queue::later))]
async fn assign(id: u64, mut warehouse: String) -> Result<(), OrderError> {
    warehouse.push('!');
    store(id, warehouse).await
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = fallback(queue::later))]
fn assign_now(id: u64) -> Result<(), OrderError> {
    store(id)
}
