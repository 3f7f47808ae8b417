#[distributed_lock(key = "order:<id>", policy = orders::AUDITS)]
async fn audit(id: u64) -> Result<Receipt, OrderError> {
    run(id).await
}

impl Orders {
    #[distributed_lock(
        key = "order:<id>",
        policy = Self::POLICY,
        ttl = self.ttl,
        min_hold = "5s",
        on_lost = cancel,
        on_busy = skip,
        guard = lock
    )]
    async fn assign(&self, id: u64) {
        self.run(id, lock).await
    }
}
