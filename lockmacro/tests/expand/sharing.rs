#[distributed_lock(key = "orders", shared)]
async fn report(id: u64) -> Response {
    read(id).await
}

#[distributed_lock(key = "printer", permits = 3)]
fn print(room: u32) -> Response {
    send(room)
}

#[distributed_lock(
    key = [shared("rates:<day>"), permits("desk", desks(day)), "account:<id>", bank(&id)]
)]
async fn book(day: Day, id: Id) -> Response {
    convert(day, id).await
}
