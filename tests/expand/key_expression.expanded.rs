async fn audit(order: Shared<Order>) -> Result<Receipt, OrderError> {
    let lock = ::lockmacro_runtime::Lock::new(order_key(&order.lock().unwrap()))
        .ttl(::core::time::Duration::from_secs(300))
        .name("audit");
    lock.run(async move {
            if false {
                return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                    Result<Receipt, OrderError>,
                >();
            }
            audit_now(order).await
        })
        .await
}
