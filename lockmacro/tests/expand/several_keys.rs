#[distributed_lock(key = ["account:<from>", "account:<to>"], fence = [debit, credit])]
async fn transfer(from: u64, to: u64, cents: i64) -> Response {
    withdraw(from, cents, debit).await?;
    deposit(to, cents, credit).await
}

#[distributed_lock(key = ["books", "till"])]
fn count() -> Response {
    till().sum()
}
