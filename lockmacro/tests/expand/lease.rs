#[distributed_lock(
    key = "report", ttl = "10s", renew, max_hold = "10m", min_hold = "1500ms", wait = "5s",
    on_lost = error, release = background,
)]
async fn report() -> Response {
    write().await
}

#[distributed_lock(
    key = "report", max_hold = longest(order), wait = forever, on_lost = finish,
    release = background, guard = lock,
)]
fn report_now(order: &Order) -> Response {
    order.report_under(lock)
}
