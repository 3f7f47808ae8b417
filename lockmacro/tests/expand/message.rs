#[distributed_lock(
    key = "<id.to_lowercase()>",
    message = "order {<id>} is being audited; <<again>> in <order.minutes> min"
)]
async fn audit(id: &str, order: Order) -> Response {
    order.audit(id).await
}

#[distributed_lock(key = "report", message = "a report is being written {}")]
async fn report() -> Response {
    write().await
}
