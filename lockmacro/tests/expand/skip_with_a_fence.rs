#[distributed_lock(key = "report", on_busy = skip, fence = fence)]
async fn report() {
    write_report(fence).await;
}

#[distributed_lock(key = "report", on_busy = skip, fence = fence, guard = lock, on_lost = discard)]
fn report_now() -> Option<Report> {
    write_report_under(lock, fence)
}
