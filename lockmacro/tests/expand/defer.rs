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

#[distributed_lock(key = "index:<shop>", on_busy = defer("5s", latest))]
async fn index_shop(shop: u64) -> Response {
    index(shop).await
}

#[distributed_lock(
    key = "search:<shop>", on_busy = defer(DELAY, latest, at_most = "1m", attempts = 3),
)]
async fn search_shop(shop: u64) -> Response {
    index(shop).await
}
