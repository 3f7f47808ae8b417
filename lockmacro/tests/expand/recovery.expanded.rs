impl Orders {
    async fn assign(&self, id: u64) -> Result<Receipt, OrderError> {
        ::lockmacro_runtime::Lock::new(
                ::lockmacro_runtime::LockKey::template("order:<id>")
                    .literal("order:")
                    .value(&id),
            )
            .ttl(::core::time::Duration::from_secs(300))
            .name(::core::concat!(::core::module_path!(), "::assign"))
            .recovering(
                ::lockmacro_runtime::__private::recover::<
                    Result<Receipt, OrderError>,
                >(Self::rollback),
            )
            .run({
                async move {
                    if false {
                        return <Result<
                            Receipt,
                            OrderError,
                        > as ::lockmacro_runtime::LockOutcome>::outcome();
                    }
                    self.reserve(id).await?;
                    self.store(id).await
                }
            })
            .await
    }
    fn assign_now(&self, id: u64) -> Result<Receipt, OrderError> {
        ::lockmacro_runtime::Lock::new(
                ::lockmacro_runtime::LockKey::template("order:<id>")
                    .literal("order:")
                    .value(&id),
            )
            .ttl(::core::time::Duration::from_secs(300))
            .name(::core::concat!(::core::module_path!(), "::assign_now"))
            .recovering(
                ::lockmacro_runtime::__private::recover::<
                    Result<Receipt, OrderError>,
                >(Self::rollback),
            )
            .run_blocking(move || {
                if false {
                    return <Result<
                        Receipt,
                        OrderError,
                    > as ::lockmacro_runtime::LockOutcome>::outcome();
                }
                self.store_now(id)
            })
    }
}
