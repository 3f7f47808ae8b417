#[distributed_lock(
    key = "order:<id>", ttl = "10s", renew, max_hold = "10m", min_hold = "1500ms", on_lost = error,
)]
async fn audit(id: u64) -> Result<Receipt, OrderError> {
    audit_now(id).await
}

#[distributed_lock(key = "report", max_hold = longest(order), on_lost = finish, on_busy = skip)]
fn report(order: &Order) -> Option<Report> {
    order.report()
}
