#[distributed_lock(
    key = keys(order.lines.iter().map(|line| format!("stock:{}", line.sku))),
    ttl = "30s",
    fence = fences
)]
async fn reserve(order: Order) -> Result<(), OrderError> {
    for (line, fence) in order.lines.iter().zip(fences) {
        take(line, fence).await?;
    }
    Ok(())
}
