impl Orders {
    #[distributed_lock(key = "stock", on_lost = Self::rollback)]
    async fn assign(&self, id: u64) -> Response {
        self.store(id).await
    }

    #[distributed_lock(key = "stock", on_lost = Self::rollback)]
    fn assign_now(&self, id: u64) -> Response {
        self.store_now(id)
    }
}
