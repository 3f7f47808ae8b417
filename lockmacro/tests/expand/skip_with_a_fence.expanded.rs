async fn report() {
    let __lock = match ::lockmacro_runtime::Lock::new("report")
        .wait(::core::time::Duration::ZERO)
        .fenced()
        .name(::core::concat!(::core::module_path!(), "::report"))
        .acquire()
        .await
    {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::SkipOutcome::refused(
                ::core::concat!(::core::module_path!(), "::report"),
                __error,
            );
        }
    };
    let ::core::option::Option::Some(fence) = __lock.fence() else {
        ::core::unreachable!("the lock is fenced")
    };
    __lock
        .skip_when_busy()
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
    let __lock = match ::lockmacro_runtime::Lock::new("report")
        .wait(::core::time::Duration::ZERO)
        .fenced()
        .name(::core::concat!(::core::module_path!(), "::report_now"))
        .acquire_blocking()
    {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::SkipOutcome::refused(
                ::core::concat!(::core::module_path!(), "::report_now"),
                __error,
            );
        }
    };
    let ::core::option::Option::Some(fence) = __lock.fence() else {
        ::core::unreachable!("the lock is fenced")
    };
    let lock = __lock.handle();
    let lock = &lock;
    let _ = &fence;
    __lock
        .skip_when_busy()
        .recovering(::lockmacro_runtime::__private::recover::<Option<Report>>(discard))
        .run_blocking(move || {
            if false {
                return <Option<Report> as ::lockmacro_runtime::SkipOutcome>::outcome();
            }
            write_report_under(lock, fence)
        })
}
