async fn audit(order: Shared<Order>) -> Result<Receipt, OrderError> {
    let __lock = ::lockmacro_runtime::Lock::new(order_key(&order.lock().unwrap()))
        .ttl(::core::time::Duration::from_secs(300))
        .name(::core::concat!(::core::module_path!(), "::audit"));
    __lock
        .run({
            async move {
                if false {
                    return ::lockmacro_runtime::__same_version_as_lockmacro_0_1_0::outcome::<
                        Result<Receipt, OrderError>,
                    >();
                }
                let _ = &order;
                audit_now(order).await
            }
        })
        .await
}
