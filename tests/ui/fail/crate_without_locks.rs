//! The argument `crate` is not the runtime that the attribute belongs to.

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>", crate = lockmacro_runtimes)]
async fn unknown_crate(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", crate = crate::locks)]
async fn unknown_module(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(key = "order:<id>", crate = std)]
async fn crate_that_has_no_locks(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

mod older {
    #[allow(unused_imports)]
    pub use lockmacro_runtime::{Lock, LockKey};

    pub mod __same_version_as_lockmacro_0_0_9 {}
}

#[distributed_lock(key = "order:<id>", ttl = "300s", crate = crate::older)]
async fn runtime_of_another_version(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
