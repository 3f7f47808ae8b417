#[distributed_lock(key = "account:<id>", ttl = "10s", wait = "1500ms")]
async fn book(id: u64) -> Result<(), BookingError> {
    book_now(id).await
}

#[distributed_lock(key = "import", wait = forever)]
fn import() -> Result<Report, ImportError> {
    import_now()
}

#[distributed_lock(
    key = "import", wait = patience(site), on_busy = fallback(tomorrow), fence = fence,
)]
async fn refresh(site: &Site) -> Result<Report, ImportError> {
    site.refresh(fence).await
}
