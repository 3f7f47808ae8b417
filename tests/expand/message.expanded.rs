async fn audit(id: &str, order: Order) -> Result<Receipt, OrderError> {
    let lock = ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("order:<id.to_lowercase()>")
                .literal("order:")
                .value(&id.to_lowercase()),
        )
        .ttl(::core::time::Duration::from_secs(300))
        .name("audit")
        .message(
            ::std::format!(
                "order {{{}}} is being audited; <again>> in {} min", id, order.minutes
            ),
        );
    lock.run(async move {
            if false {
                return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                    Result<Receipt, OrderError>,
                >();
            }
            order.audit(id).await
        })
        .await
}
async fn report() -> Result<(), OrderError> {
    ::lockmacro_runtime::Lock::new("report")
        .ttl(::core::time::Duration::from_secs(300))
        .name("report")
        .message("a report is being written {}")
        .run(async move {
            if false {
                return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                    Result<(), OrderError>,
                >();
            }
            write().await
        })
        .await
}
