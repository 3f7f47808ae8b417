//! What `map_err` makes is not the error of the function, or the function has none.

use lockmacro_runtime::{LockError, distributed_lock};

fn text(error: LockError) -> String {
    error.to_string()
}

pub struct Receipt(u64);

#[distributed_lock(key = "order:<id>", map_err = text)]
pub async fn of_a_type(id: u64) -> Receipt {
    Receipt(id)
}

pub struct Json<T>(T);

#[distributed_lock(key = "order:<id>", map_err = text)]
pub fn of_a_generic_type(id: u64) -> Json<u64> {
    Json(id)
}

pub type ReceiptNumber = u64;

#[distributed_lock(key = "order:<id>", map_err = text)]
pub async fn of_an_alias(id: u64) -> ReceiptNumber {
    id
}

#[distributed_lock(key = "order:<id>", ttl = "300s", map_err = text)]
async fn to_another_error(id: u64) -> Result<u64, std::io::Error> {
    Ok(id)
}

fn main() {}
