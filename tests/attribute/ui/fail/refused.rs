//! Messages of the macro itself whose place, warnings or item only the compiler has: the others are
//! in `lockmacro/tests/expand/refused.txt`.

use lockmacro_runtime::{LockError, distributed_lock};

#[distributed_lock]
async fn arguments_missing(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(ttl = "300s")]
async fn key_missing(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// No argument is called unused beside the message.
#[distributed_lock(key = "order:<id>", tll = "300s")]
async fn argument_that_only_the_key_uses(id: u64, desk: u64) -> Result<(), LockError> {
    Ok(())
}

#[async_trait::async_trait]
pub trait Audit {
    async fn pattern_under_async_trait(&self, order: (u64, u64)) -> Result<u64, LockError>;
}

#[async_trait::async_trait]
impl Audit for () {
    #[distributed_lock(key = "order:<id>", ttl = "300s")]
    async fn pattern_under_async_trait(&self, (id, line): (u64, u64)) -> Result<u64, LockError> {
        Ok(id + line)
    }
}

fn main() {}
