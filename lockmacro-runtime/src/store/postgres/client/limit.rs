//! A server that has no room for all connections of a manager, or does not allow them to its user.

use std::sync::Weak;
use std::time::Duration;

use crate::sys::sync::Mutex;
use crate::sys::time::Instant;

/// How long a manager uses few connections before it tries to open more.
const FEW_FOR: Duration = Duration::from_secs(20);
/// Shortest time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60 * 60);

/// A pool that can do with fewer connections.
pub(crate) trait Shrink: Send + Sync {
    fn shrink(&self);
}

/// What the pools of a manager know of it. While it is reached, each uses one connection.
#[derive(Default)]
pub(crate) struct Limit {
    pools: Mutex<Vec<Weak<dyn Shrink>>>,
    /// When it was met last.
    met: Mutex<Option<Instant>>,
    warned: Mutex<Option<Instant>>,
}

impl Limit {
    pub(crate) fn add(&self, pool: Weak<dyn Shrink>) {
        let mut pools = self.pools.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(pool);
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.met.lock().is_some_and(|met| met.elapsed() < FEW_FOR)
    }

    /// Notes that one connection too many was asked for. The pools give up what they can: this
    /// one's idle connection may be what another one needs.
    pub(crate) fn note_reached(&self, server: impl FnOnce() -> String) {
        let now = Instant::now();
        *self.met.lock() = Some(now);
        let mut warned = self.warned.lock();
        if warned.is_none_or(|last| now.duration_since(last) > WARN_EVERY) {
            *warned = Some(now);
            drop(warned);
            tracing::warn!(
                server = server(),
                "no room for more connections: two are used for all locks, which is slower; raise \
                 `max_connections`, the user's CONNECTION LIMIT, or `max_client_conn` of the pooler"
            );
        }
        let pools: Vec<_> = self.pools.lock().iter().filter_map(Weak::upgrade).collect();
        pools.iter().for_each(|pool| pool.shrink());
    }
}
