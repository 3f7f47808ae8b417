use lockmacro_runtime::{LockError, distributed_lock};

pub struct Json<T>(T);

fn text(error: LockError) -> String {
    error.to_string()
}

#[distributed_lock(key = "order:<id>", map_err = text)]
pub fn audit(id: u64) -> Json<u64> {
    Json(id)
}

fn main() {}
