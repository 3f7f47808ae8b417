use lockmacro_runtime::{LockError, distributed_lock};

pub type Receipt = u64;

fn text(error: LockError) -> String {
    error.to_string()
}

#[distributed_lock(key = "order:<id>", map_err = text)]
pub async fn audit(id: u64) -> Receipt {
    id
}

fn main() {}
