/// Audits an order.
#[distributed_lock(key = "order:<id>", ttl = "300s", unlocked = audit_held, manager = locks)]
#[inline]
pub(crate) async fn audit<'a>(locks: &'a LockManager, id: u64) -> Result<Receipt, OrderError> {
    run(id).await
}

impl Bank {
    #[distributed_lock(
        key = ["account:<from>", "account:<to>"],
        when = cents > 0,
        unlocked = transfer_held
    )]
    fn transfer(&mut self, from: u64, to: u64, cents: i64) -> Result<(), BankError> {
        self.book(from, -cents)?;
        self.book(to, cents)
    }
}
