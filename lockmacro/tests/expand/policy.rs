#[distributed_lock(key = "audits", policy = orders::AUDITS)]
async fn audit(id: u64) -> Response {
    run(id).await
}

impl Orders {
    #[distributed_lock(
        key = "audits", policy = Self::POLICY, ttl = self.ttl, min_hold = "5s", on_lost = cancel,
        on_busy = skip, guard = lock,
    )]
    async fn assign(&self, id: u64) {
        self.run(id, lock).await
    }
}
