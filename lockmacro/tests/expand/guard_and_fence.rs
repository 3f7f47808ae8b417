#[distributed_lock(key = "audits", guard = lease, fence = fence)]
async fn audit(id: u64) -> Result<Receipt, OrderError> {
    let receipt = compute(id, lease).await?;
    store(id, receipt, fence).await
}
