#[distributed_lock(key = order_key(&order.lock().unwrap()), ttl = "300s")]
async fn audit(order: Shared<Order>) -> Result<Receipt, OrderError> {
    audit_now(order).await
}
