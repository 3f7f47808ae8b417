#[tracing::instrument]
/// Writes the report.
async fn nightly_report() {
    #![allow(clippy::unused_async)]
    ::lockmacro_runtime::Lock::new("nightly-report")
        .ttl(::core::time::Duration::from_secs(3600))
        .name(::core::concat!(::core::module_path!(), "::nightly_report"))
        .run_or_skip({
            async move {
                if false {
                    return <() as ::lockmacro_runtime::SkipOutcome>::outcome();
                }
                write_report();
            }
        })
        .await
}
fn nightly_report_now() -> Option<Report> {
    ::lockmacro_runtime::Lock::new("nightly-report")
        .ttl(::core::time::Duration::from_secs(3600))
        .name(::core::concat!(::core::module_path!(), "::nightly_report_now"))
        .run_blocking_or_skip(move || {
            if false {
                return <Option<Report> as ::lockmacro_runtime::SkipOutcome>::outcome();
            }
            report()
        })
}
