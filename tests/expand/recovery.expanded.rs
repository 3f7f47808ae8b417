impl Orders {
    async fn assign(&self, id: u64) -> Result<Receipt, OrderError> {
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
                lock.recovering::<
                        Result<Receipt, OrderError>,
                        _,
                    >(|lost, value| Self::rollback(lost, value))
                    .run(async move {
                        if false {
                            return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                                Result<Receipt, OrderError>,
                            >();
                        }
                        self.reserve(id).await?;
                        self.store(id).await
                    })
                    .await
            }
            ::core::result::Result::Err(error) => {
                ::lockmacro_runtime::LockOutcome::from_lock_error(error)
            }
        }
    }
    fn assign_now(&self, id: u64) -> Result<Receipt, OrderError> {
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
                lock.recovering::<
                        Result<Receipt, OrderError>,
                        _,
                    >(|lost, value| Self::rollback(lost, value))
                    .run_blocking(move || {
                        if false {
                            return ::lockmacro_runtime::__macro_v0_1_0::outcome::<
                                Result<Receipt, OrderError>,
                            >();
                        }
                        self.store_now(id)
                    })
            }
            ::core::result::Result::Err(error) => {
                ::lockmacro_runtime::LockOutcome::from_lock_error(error)
            }
        }
    }
}
