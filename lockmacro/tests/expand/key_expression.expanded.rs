async fn audit(order: Shared<Order>) -> Result<Receipt, OrderError> {
    let __lock = ::lockmacro_runtime::Lock::new(order_key(&order.lock().unwrap()))
        .ttl(::core::time::Duration::from_secs(300))
        .name(::core::concat!(::core::module_path!(), "::audit"));
    __lock
        .run({
            async move {
                if false {
                    return <Result<
                        Receipt,
                        OrderError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                let _ = &order;
                audit_now(order).await
            }
        })
        .await
}
