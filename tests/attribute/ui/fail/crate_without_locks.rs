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

fn main() {}
