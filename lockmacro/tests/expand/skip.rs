#[distributed_lock(key = "nightly-report", ttl = "1h", on_busy = skip)]
#[tracing::instrument]
/// Writes the report.
async fn nightly_report() {
    #![allow(clippy::unused_async)]
    write_report();
}

#[distributed_lock(key = "nightly-report", ttl = "1h", on_busy = skip)]
fn nightly_report_now() -> Option<Report> {
    report()
}
