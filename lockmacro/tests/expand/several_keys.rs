#[distributed_lock(
    key = ["account:<from>", "account:<to>"],
    ttl = "10s",
    wait = "5s",
    fence = [debit, credit]
)]
async fn transfer(from: u64, to: u64, cents: i64) -> Result<(), BankError> {
    withdraw(from, cents, debit).await?;
    deposit(to, cents, credit).await
}

#[distributed_lock(key = ["bank", "account:<id>", tenant_key(&tenant)], ttl = "10s")]
async fn close(id: u64, tenant: Tenant) -> Result<(), BankError> {
    remove(id).await
}

#[distributed_lock(key = ["books", "till"])]
fn count() -> Result<u64, BankError> {
    till().sum()
}
