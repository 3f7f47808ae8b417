//! A function returns what cannot say that its lock was busy or lost.

use lockmacro_runtime::{Lost, distributed_lock};

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn number(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn number_sync(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<id>", ttl = "300s", guard = _lock)]
async fn number_with_a_guard(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<id>", ttl = "300s", fence = _fence)]
fn number_with_a_fence_sync(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = fallback(later))]
async fn number_under_fallback(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_busy = fallback(later), fence = _fence)]
async fn number_under_fallback_with_a_fence(id: u64) -> u64 {
    id
}

async fn later(id: u64) -> u64 {
    id
}

#[distributed_lock(key = "order:<id>", ttl = "300s", on_lost = rollback)]
async fn number_under_recovery(id: u64) -> u64 {
    id
}

fn rollback(_: Lost, value: u64) -> u64 {
    value
}

#[async_trait::async_trait]
pub trait Audit {
    async fn number_from_async_trait(&self, id: u64) -> u64;
}

#[async_trait::async_trait]
impl Audit for () {
    #[distributed_lock(key = "order:<id>", ttl = "300s")]
    async fn number_from_async_trait(&self, id: u64) -> u64 {
        id
    }
}

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn option(id: u64) -> Option<u64> {
    Some(id)
}

#[distributed_lock(key = "order:<id>", ttl = "300s")]
async fn nothing(id: u64) {
    drop(id);
}

#[distributed_lock(key = "order:<id>", ttl = "300s")]
fn nothing_sync(id: u64) {
    println!("{id}");
}

fn main() {}
