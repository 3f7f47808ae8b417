#[distributed_lock(key = "oauth:<tenant>", on_busy = reuse(keep = "50s"))]
pub async fn refresh(tenant: &str, provider: &Provider) -> Result<Token, Refused> {
    provider.refresh(tenant).await
}

#[distributed_lock(key = "report:<day>", ttl = "60s", wait = forever, on_busy = reuse)]
async fn report(day: String) -> Result<Report, LockError> {
    make(day).await
}

#[distributed_lock(
    key = "payment:<request.id>",
    on_busy = reuse(keep = DAY, same = "<request.amount> <request.currency>"),
    map_err = Refused::locked
)]
async fn pay(request: Request) -> Result<Receipt, Refused> {
    book(request).await
}
