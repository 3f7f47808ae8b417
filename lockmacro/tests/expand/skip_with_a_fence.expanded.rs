async fn report() {
    let (__lock, fence) = match ::lockmacro_runtime::Lock::new("report")
        .wait(::core::time::Duration::ZERO)
        .name(::core::concat!(::core::module_path!(), "::report"))
        .skip_when_busy()
        .acquire_fenced()
        .await
    {
        ::core::result::Result::Ok((__lock, __fences)) => (__lock, __fences[0]),
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::SkipOutcome::refused(
                ::core::concat!(::core::module_path!(), "::report"),
                __error,
            );
        }
    };
    __lock
        .run({
            async move {
                if false {
                    return <() as ::lockmacro_runtime::SkipOutcome>::outcome();
                }
                write_report(fence).await;
            }
        })
        .await
}
fn report_now() -> Option<Report> {
    let (__lock, fence) = match ::lockmacro_runtime::Lock::new("report")
        .wait(::core::time::Duration::ZERO)
        .name(::core::concat!(::core::module_path!(), "::report_now"))
        .skip_when_busy()
        .recovering(::lockmacro_runtime::__private::recover::<Option<Report>>(discard))
        .acquire_fenced_blocking()
    {
        ::core::result::Result::Ok((__lock, __fences)) => (__lock, __fences[0]),
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::SkipOutcome::refused(
                ::core::concat!(::core::module_path!(), "::report_now"),
                __error,
            );
        }
    };
    let lock = __lock.handle();
    let lock = &lock;
    let _ = &fence;
    __lock
        .run_blocking(move || {
            if false {
                return <Option<Report> as ::lockmacro_runtime::SkipOutcome>::outcome();
            }
            write_report_under(lock, fence)
        })
}
