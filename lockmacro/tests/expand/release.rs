#[distributed_lock(key = "cart:<id>", ttl = "10s", wait = "5s", release = background)]
async fn add_to_cart(id: u64, sku: &str) -> Result<Cart, ShopError> {
    add(id, sku).await
}

#[distributed_lock(key = "report", release = background, guard = lock, on_busy = skip)]
fn report(order: &Order) -> Option<Report> {
    order.report_under(lock)
}
