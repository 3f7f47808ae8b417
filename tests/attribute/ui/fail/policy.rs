//! A policy contradicts itself, or the arguments beside it.

use std::time::Duration;

use lockmacro_runtime::{LockError, LockPolicy, distributed_lock};

const KEPT: LockPolicy =
    LockPolicy::new().ttl(Duration::from_secs(30)).min_hold(Duration::from_secs(20));

#[distributed_lock(key = "order:<id>", policy = KEPT, ttl = "10s")]
async fn min_hold_over_the_ttl_here(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

const LEASED: LockPolicy = LockPolicy::new().ttl(Duration::from_secs(30));

#[distributed_lock(key = "order:<id>", policy = LEASED, max_hold = "10m")]
fn ttl_beside_max_hold_here(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

const NO_TIME: LockPolicy = LockPolicy::new().ttl(Duration::ZERO);

#[distributed_lock(key = "order:<id>", policy = NO_TIME)]
async fn ttl_of_zero(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

mod orders {
    pub const AUDITS: super::LockPolicy = super::LockPolicy::new().wait_forever();
}

#[distributed_lock(key = "order:<id>", policy = orders::AUDITS, on_busy = skip)]
async fn waits_forever_before_skip(id: u64) {}

const NO_DESKS: LockPolicy = LockPolicy::new().permits(0);

#[distributed_lock(key = "desk", policy = NO_DESKS)]
async fn without_permits() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
