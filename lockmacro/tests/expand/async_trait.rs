impl Auditor for Orders {
    #[distributed_lock(key = "<self.tenant>:order:<id>", ttl = "30s", manager = &self.locks)]
    fn audit<'life0, 'async_trait>(
        &'life0 self,
        id: u64,
    ) -> ::core::pin::Pin<
        Box<
            dyn ::core::future::Future<Output = Result<Receipt, Error>>
                + ::core::marker::Send
                + 'async_trait,
        >,
    >
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let __self = self;
            let id = id;
            let __ret: Result<Receipt, Error> = { __self.run(id).await };
            __ret
        })
    }
}
