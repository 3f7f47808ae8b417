use lockmacro_runtime::{LockError, distributed_lock};

mod older {
    #[allow(unused_imports)]
    pub use lockmacro_runtime::{Lock, LockKey};

    pub mod __same_version_as_lockmacro_0_0_9 {}
}

#[distributed_lock(key = "order:<id>", ttl = "300s", crate = crate::older)]
async fn audit(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
