#[distributed_lock(
    key = "import", wait = patience(site), on_busy = fallback(tomorrow), fence = fence,
)]
async fn refresh(site: &Site) -> Response {
    site.refresh(fence).await
}
