async fn assign(id: u64, mut warehouse: String) -> Result<(), OrderError> {
    match ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("order:<id>")
                .literal("order:")
                .value(&id),
        )
        .ttl(::core::time::Duration::from_secs(300))
        .name("assign")
        .acquire()
        .await
    {
        ::core::result::Result::Ok(lock) => {
            lock.run(async move {
                    if false {
                        return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                            Result<(), OrderError>,
                        >();
                    }
                    warehouse.push('!');
                    store(id, warehouse).await
                })
                .await
        }
        ::core::result::Result::Err(busy) if busy.is_busy() => {
            queue::later(id, warehouse).await
        }
        ::core::result::Result::Err(error) => {
            ::lockmacro_runtime::LockOutcome::from_lock_error(error)
        }
    }
}
fn assign_now(id: u64) -> Result<(), OrderError> {
    match ::lockmacro_runtime::Lock::new(
            ::lockmacro_runtime::LockKey::template("order:<id>")
                .literal("order:")
                .value(&id),
        )
        .ttl(::core::time::Duration::from_secs(300))
        .name("assign_now")
        .acquire_blocking()
    {
        ::core::result::Result::Ok(lock) => {
            lock.run_blocking(move || {
                if false {
                    return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                        Result<(), OrderError>,
                    >();
                }
                store(id)
            })
        }
        ::core::result::Result::Err(busy) if busy.is_busy() => queue::later(id),
        ::core::result::Result::Err(error) => {
            ::lockmacro_runtime::LockOutcome::from_lock_error(error)
        }
    }
}
