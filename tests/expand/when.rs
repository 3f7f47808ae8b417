#[distributed_lock(key = "order:<id>", ttl = "300s", when = !dry_run)]
async fn audit(id: u64, dry_run: bool) -> Result<Receipt, OrderError> {
    run(id).await
}

#[distributed_lock(
    key = number(&order).await,
    when = order == Order { urgent: true, ..Order::default() },
    on_busy = fallback(later),
    guard = lock,
)]
async fn assign(order: Order) -> Result<(), OrderError> {
    if let Some(lock) = lock {
        lock.check()?;
    }
    store(order).await
}

#[distributed_lock(key = "report:<day>", on_busy = skip, when = day.is_holiday())]
fn report(day: Day) {
    print(day)
}
