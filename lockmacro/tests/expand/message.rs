#[distributed_lock(
    key = "order:<id.to_lowercase()>",
    ttl = "300s",
    message = "order {<id>} is being audited; <<again>> in <order.minutes> min"
)]
async fn audit(id: &str, order: Order) -> Result<Receipt, OrderError> {
    order.audit(id).await
}

#[distributed_lock(key = "report", ttl = "300s", message = "a report is being written {}")]
async fn report() -> Result<(), OrderError> {
    write().await
}
