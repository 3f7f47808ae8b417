use lockmacro_runtime::{LockError, LockPolicy, distributed_lock};

const DESKS: LockPolicy = LockPolicy::new().permits(0);

#[distributed_lock(key = "desk", policy = DESKS)]
async fn work() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
