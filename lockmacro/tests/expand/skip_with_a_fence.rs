#[distributed_lock(key = "nightly-report", ttl = "1h", on_busy = skip, fence = fence)]
async fn nightly_report() {
    write_report(fence).await;
}

#[distributed_lock(
    key = "nightly-report", ttl = "1h", on_busy = skip, fence = fence, guard = lock,
    on_lost = discard,
)]
fn nightly_report_now() -> Option<Report> {
    report(lock, fence)
}
