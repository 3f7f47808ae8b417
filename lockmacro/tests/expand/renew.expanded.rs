async fn audit(id: u64) -> Result<Receipt, OrderError> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("order:<id>")
                .literal("order:")
                .value(&id),
        )
        .ttl(::core::time::Duration::from_secs(10))
        .renew()
        .max_hold(::core::time::Duration::from_secs(600))
        .min_hold(::core::time::Duration::from_millis(1500))
        .on_lost(::lockmacro_runtime::OnLost::Error)
        .name(::core::concat!(::core::module_path!(), "::audit"))
        .run({
            async move {
                if false {
                    return <Result<
                        Receipt,
                        OrderError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                audit_now(id).await
            }
        })
        .await
}
fn report(order: &Order) -> Option<Report> {
    let __lock = ::lockmacro_runtime::Lock::new("report")
        .max_hold(longest(order))
        .on_lost(::lockmacro_runtime::OnLost::Finish)
        .name(::core::concat!(::core::module_path!(), "::report"))
        .skip_when_busy();
    __lock
        .run_blocking(move || {
            if false {
                return <Option<Report> as ::lockmacro_runtime::SkipOutcome>::outcome();
            }
            order.report()
        })
}
