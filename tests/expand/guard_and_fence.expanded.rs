async fn audit(id: u64) -> Result<Receipt, OrderError> {
    match ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("order:<id>")
                .literal("order:")
                .value(&id),
        )
        .ttl(::core::time::Duration::from_secs(300))
        .name("audit")
        .acquire_fenced()
        .await
    {
        ::core::result::Result::Ok((lock, fence)) => {
            let lease = &lock.share();
            lock.run(async move {
                    if false {
                        return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                            Result<Receipt, OrderError>,
                        >();
                    }
                    let receipt = compute(id, lease).await?;
                    store(id, receipt, fence).await
                })
                .await
        }
        ::core::result::Result::Err(error) => {
            ::lockmacro_runtime::LockOutcome::from_lock_error(error)
        }
    }
}
