//! A placeholder's value cannot be displayed, or has no such part.

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<ids>", ttl = "300s")]
async fn value_that_is_not_displayed(ids: Vec<u64>) -> Result<usize, LockError> {
    Ok(ids.len())
}

#[distributed_lock(key = "order:<id>")]
pub async fn value_of_any_type<T>(id: T) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id.number>", ttl = "300s")]
async fn value_without_fields(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

struct Order {
    id: u64,
}

impl Order {
    const TABLE: &str = "orders";

    fn number(&self) -> u64 {
        self.id
    }

    #[distributed_lock(key = "<Self::TABEL>:<id>", ttl = "300s")]
    async fn misspelt_constant(id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

trait Kind {
    const NAME: &str;
}

#[distributed_lock(key = "<T::NAM>:<id>", ttl = "300s")]
async fn misspelt_constant_of_a_type_parameter<T: Kind>(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<order.idd>", ttl = "300s")]
async fn misspelt_field(order: &Order) -> Result<u64, LockError> {
    Ok(order.id)
}

#[distributed_lock(key = "order:<order.numbr()>", ttl = "300s")]
async fn misspelt_method(order: &Order) -> Result<u64, LockError> {
    Ok(order.number())
}

fn main() {}
