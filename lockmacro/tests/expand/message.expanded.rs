async fn audit(id: &str, order: Order) -> Response {
    let __lock = ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("<id.to_lowercase()>")
                .value(&id.to_lowercase()),
        )
        .name(::core::concat!(::core::module_path!(), "::audit"));
    let __lock = match __lock.acquire().await {
        ::core::result::Result::Ok(__held) => __held,
        ::core::result::Result::Err(__error) => {
            return ::lockmacro_runtime::LockOutcome::from_lock_error(
                __error
                    .with_message(
                        ::core::format_args!(
                            "order {{{}}} is being audited; <again>> in {} min", id,
                            order.minutes
                        ),
                    ),
            );
        }
    };
    __lock
        .run({
            async move {
                if false {
                    return <Response as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                let _ = &order;
                order.audit(id).await
            }
        })
        .await
}
async fn report() -> Response {
    ::lockmacro_runtime::Lock::new("report")
        .name(::core::concat!(::core::module_path!(), "::report"))
        .message("a report is being written {}")
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
