#[tracing::instrument]
/// Writes the report.
async fn nightly_report() {
    #![allow(clippy::unused_async)]
    ::lockmacro_runtime::Lock::new("nightly-report")
        .ttl(::core::time::Duration::from_secs(3600))
        .name(::core::concat!(::core::module_path!(), "::nightly_report"))
        .skip_when_busy()
        .run({
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
        .skip_when_busy()
        .run_blocking(move || {
            if false {
                return <Option<Report> as ::lockmacro_runtime::SkipOutcome>::outcome();
            }
            report()
        })
}
