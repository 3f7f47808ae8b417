#[distributed_lock(key = "order:<id>", shared, ttl = "10s")]
async fn report(id: u64) -> Result<Report, OrderError> {
    read(id).await
}

#[distributed_lock(key = "printer:<room>", permits = 3, wait = "5s")]
fn print(room: u32) -> Result<(), PrintError> {
    send(room)
}

#[distributed_lock(key = [shared("rates:<day>"), permits("desk", desks(day)), "account:<id>"])]
async fn book(day: Day, id: u64) -> Result<(), BankError> {
    convert(day, id).await
}
