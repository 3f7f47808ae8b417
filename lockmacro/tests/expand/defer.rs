#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = defer("30s"))]
pub async fn audit_order(id: u64, note: String) -> Result<Receipt, OrderError> {
    audit(id, note).await
}

#[distributed_lock(
    key = "report:<day>",
    ttl = "10m",
    on_busy = defer("5m", unique, attempts = 3), name = "reports",
    manager = locks()
)]
fn report(day: String) {
    print(day)
}
