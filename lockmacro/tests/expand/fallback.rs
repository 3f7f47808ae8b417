#[distributed_lock(key = "stock", on_busy = fallback(queue::later))]
async fn assign(id: u64, mut warehouse: String) -> Response {
    warehouse.push('!');
    store(id, warehouse).await
}

#[distributed_lock(key = "stock", on_busy = fallback(queue::later))]
fn assign_now(id: u64) -> Response {
    store(id)
}
