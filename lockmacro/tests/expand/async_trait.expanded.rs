impl Auditor for Orders {
    fn audit<'life0, 'async_trait>(
        &'life0 self,
        id: u64,
    ) -> ::core::pin::Pin<
        Box<
            dyn ::core::future::Future<
                Output = Result<Receipt, Error>,
            > + ::core::marker::Send + 'async_trait,
        >,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            ::lockmacro_runtime::Lock::new(
                    ::lockmacro_runtime::LockKey::template("<self.tenant>:order:<id>")
                        .value(&self.tenant)
                        .literal(":order:")
                        .value(&id),
                )
                .ttl(::core::time::Duration::from_secs(30))
                .name(::core::concat!(::core::module_path!(), "::audit"))
                .manager(&self.locks)
                .run({
                    async move {
                        if false {
                            return <Result<
                                Receipt,
                                Error,
                            > as ::lockmacro_runtime::LockOutcome>::outcome();
                        }
                        let __self = self;
                        let id = id;
                        let __ret: Result<Receipt, Error> = { __self.run(id).await };
                        __ret
                    }
                })
                .await
        })
    }
}
