async fn audit_order(id: u64) -> Result<Receipt, OrderError> {
    ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("order:<id>")
                .literal("order:")
                .value(&id),
        )
        .ttl(::core::time::Duration::from_secs(300))
        .name(::core::concat!(::core::module_path!(), "::audit_order"))
        .run({
            async move {
                if false {
                    return <Result<
                        Receipt,
                        OrderError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                let order = load(id).await?;
                if order.is_audited() {
                    return Ok(order.receipt());
                }
                order.audit().await
            }
        })
        .await
}
