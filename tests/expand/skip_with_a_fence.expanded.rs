async fn nightly_report() {
    match ::lockmacro_runtime::Lock::new("nightly-report")
        .ttl(::core::time::Duration::from_secs(3600))
        .wait(::core::time::Duration::ZERO)
        .name("nightly_report")
        .acquire_fenced()
        .await
    {
        ::core::result::Result::Ok((lock, fence)) => {
            lock.run_or_skip(async move {
                    if false {
                        return ::lockmacro_runtime::__macro_v0_1_0::outcome::<()>();
                    }
                    write_report(fence).await;
                })
                .await
        }
        ::core::result::Result::Err(error) => {
            ::lockmacro_runtime::SkipOutcome::refused("nightly_report", error)
        }
    }
}
fn nightly_report_now() -> Option<Report> {
    match ::lockmacro_runtime::Lock::new("nightly-report")
        .ttl(::core::time::Duration::from_secs(3600))
        .wait(::core::time::Duration::ZERO)
        .name("nightly_report_now")
        .acquire_fenced_blocking()
    {
        ::core::result::Result::Ok((lock, fence)) => {
            let lock = &lock.share();
            lock.recovering::<Option<Report>, _>(|lost, value| discard(lost, value))
                .run_blocking_or_skip(move || {
                    if false {
                        return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                            Option<Report>,
                        >();
                    }
                    report(lock, fence)
                })
        }
        ::core::result::Result::Err(error) => {
            ::lockmacro_runtime::SkipOutcome::refused("nightly_report_now", error)
        }
    }
}
