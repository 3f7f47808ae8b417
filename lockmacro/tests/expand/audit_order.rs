#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn audit_order(id: u64) -> Result<Receipt, OrderError> {
    let order = load(id).await?;
    if order.is_audited() {
        return Ok(order.receipt());
    }
    order.audit().await
}
