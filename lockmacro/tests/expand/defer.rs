#[distributed_lock(key = "audits", on_busy = defer("30s"))]
pub async fn audit_order(id: u64, note: String) -> Response {
    audit(id, note).await
}

#[distributed_lock(
    key = "report:<day>",
    on_busy = defer("5m", unique, attempts = 3), name = "reports",
    manager = locks()
)]
fn report(day: String) {
    print(day)
}
