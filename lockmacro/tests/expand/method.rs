impl Orders {
    #[distributed_lock(
        key = "<self.tenant>:order:<ids[0].sn>",
        ttl = self.lease,
        manager = self.locks,
        on_busy = fallback(Self::later),
        crate = erp::lock
    )]
    pub async fn audit<T: Display>(&mut self, ids: &[Id<T>]) -> Result<impl Iter, Error>
    where
        T: Send,
    {
        self.run(ids).await
    }
}
