#[distributed_lock(
    key = keys(order.lines.iter().map(|line| format!("stock:{}", line.sku))), fence = fences
)]
async fn reserve(order: Order) -> Response {
    take(order.lines, fences).await
}
