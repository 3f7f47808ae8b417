async fn report() -> Response {
    ::lockmacro_runtime::Lock::new("report")
        .ttl(::core::time::Duration::from_secs(10))
        .renew()
        .max_hold(::core::time::Duration::from_secs(600))
        .min_hold(::core::time::Duration::from_millis(1500))
        .wait(::core::time::Duration::from_secs(5))
        .on_lost(::lockmacro_runtime::OnLost::Error)
        .release_in_background()
        .name(::core::concat!(::core::module_path!(), "::report"))
        .run({
            async move {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                write().await
            }
        })
        .await
}
fn report_now(order: &Order) -> Response {
    let __lock = ::lockmacro_runtime::Lock::new("report")
        .max_hold(longest(order))
        .wait_forever()
        .on_lost(::lockmacro_runtime::OnLost::Finish)
        .release_in_background()
        .name(::core::concat!(::core::module_path!(), "::report_now"));
    let __lock = match __lock.acquire_blocking() {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(__error);
        }
    };
    let lock = __lock.handle();
    let lock = &lock;
    __lock
        .run_blocking(move || {
            if false {
                return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
            }
            order.report_under(lock)
        })
}
