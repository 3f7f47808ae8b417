impl Orders {
    #[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = Self::rollback)]
    async fn assign(&self, id: u64) -> Result<Receipt, OrderError> {
        self.reserve(id).await?;
        self.store(id).await
    }

    #[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = Self::rollback)]
    fn assign_now(&self, id: u64) -> Result<Receipt, OrderError> {
        self.store_now(id)
    }
}
