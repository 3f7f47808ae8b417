//! `--lose`: assignments that book goods out of a warehouse, and take the booking back when their
//! lock is lost half-way.

use std::time::Duration;

use lockmacro_runtime::{LockGuard, LockKey, Lost, distributed_lock};
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::desk::{Desk, OrderError, WORK};
use crate::orders::Request;
use crate::record::Booking;

impl Desk {
    /// Assigns an order to a warehouse and books the goods out of its stock. The lock is renewed
    /// while the body runs: when a desk dies, its order is free within 600 ms.
    #[distributed_lock(
        key = "order:<request.order_no>",
        ttl = "600ms",
        renew,
        max_hold = mishaps.max_hold(request),
        on_lost = take_back,
        guard = lock,
        message = "order <request.order_no> is being processed: within 500 seconds only one request is allowed",
        manager = self.locks
    )]
    pub async fn assign_and_book(
        &self,
        request: &Request,
        mishaps: &Mishaps,
    ) -> Result<Booking, OrderError> {
        let _presence = self.record.enter(&self.name, request)?;
        // No step after the booking may fail, or the body would have to take it back itself.
        let booking = self.record.book(&self.name, request)?;
        mishaps.strike(request, lock).await;
        sleep(WORK).await;
        Ok(booking)
    }
}

/// Called in place of the caller when the lock was lost: by now another desk may be at the order,
/// so this takes back the booking of its own body and touches nothing else.
fn take_back(lost: Lost, booked: Result<Booking, OrderError>) -> Result<Booking, OrderError> {
    booked?.take_back()?;
    Err(OrderError::RolledBack(lost))
}

/// How locks get lost here: for every third line of the file.
#[derive(Debug)]
pub enum Mishaps {
    /// The key is deleted, as by a person with `redis-cli` because the order "hangs".
    Operator(MultiplexedConnection),
    /// In memory the key cannot be deleted: the body takes longer than it may hold the lock.
    Slowness,
}

impl Mishaps {
    pub async fn on(url: Option<&str>) -> Result<Self, RedisError> {
        let Some(url) = url else { return Ok(Self::Slowness) };
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self::Operator(connection))
    }

    fn max_hold(&self, request: &Request) -> Duration {
        match self {
            Self::Slowness if strikes(request) => WORK * 4,
            _ => Duration::from_secs(500),
        }
    }

    async fn strike(&self, request: &Request, lock: &LockGuard) {
        if !strikes(request) {
            return;
        }
        if let Self::Operator(connection) = self
            && !delete(connection.clone(), lock.key()).await
        {
            return;
        }
        lock.lost().await;
    }
}

fn strikes(request: &Request) -> bool {
    request.line.is_multiple_of(3)
}

/// Whether the key was there and is gone.
async fn delete(mut redis: MultiplexedConnection, key: &LockKey) -> bool {
    redis::cmd("DEL").arg(key.as_str()).query_async(&mut redis).await.unwrap_or_default()
}
