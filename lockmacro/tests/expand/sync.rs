#[distributed_lock(key = "{order:<order.id>}:audit", ttl = "1500ms")]
pub(crate) fn audit<'a>(order: &'a Order) -> Result<&'a str, OrderError> {
    order.name()
}
