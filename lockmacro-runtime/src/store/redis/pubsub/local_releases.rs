//! Hand-offs to waiters of the manager that releases the lock. The answer to the release names the
//! new holder, which saves the server a message and the runtime a wake-up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::redis::client::node::Node;
use crate::store::redis::pubsub::channels::Grants;
use crate::value::key::LockKey;
use crate::value::token::hash_of;

/// An answer is late after this fraction of the manager's timeout: the first waiters then ask.
const LATE_FRACTION: u32 = 8;

/// A release in flight. If it is dropped without an answer, the first waiters ask.
pub(crate) struct LocalRelease {
    grants: Arc<Grants>,
    node: Node,
    connection: u64,
    /// The lock's number, see [`Waiters::join`](crate::store::waiters::Waiters::join).
    lock: u64,
    number: u64,
    answered: bool,
}

impl LocalRelease {
    /// Registers a release that is about to be sent; `None` without waiters of this manager, or
    /// without a connection.
    pub(crate) fn of(grants: &Arc<Grants>, node: &Node, key: &LockKey) -> Option<Self> {
        if grants.waiters.are_none() {
            return None;
        }
        let (connection, lock) = (node.connection()?, hash_of(key.as_str().as_bytes()));
        let number = add(grants, lock, node.inner.timeout / LATE_FRACTION);
        Some(Self {
            grants: Arc::clone(grants),
            node: node.clone(),
            connection,
            lock,
            number,
            answered: false,
        })
    }

    /// The channel of the manager's waiters.
    pub(crate) fn channel(&self) -> String {
        self.grants.channel(0)
    }

    /// Notes the answer, and delivers the grant in it.
    pub(crate) fn answered(mut self, grant: Option<&[u8]>) {
        self.answered = grant.is_none_or(|grant| self.node.deliver(self.connection, grant));
    }
}

impl Drop for LocalRelease {
    fn drop(&mut self) {
        let grants = &self.grants;
        grants.releases.in_flight().releases.remove(&self.number);
        if !self.answered {
            grants.waiters.alarm_first(self.lock);
        }
    }
}

fn add(grants: &Arc<Grants>, lock: u64, late: Duration) -> u64 {
    let (number, is_watched) = {
        let (mut in_flight, now) = (grants.releases.in_flight(), Instant::now());
        in_flight.last += 1;
        let number = in_flight.last;
        in_flight.releases.insert(number, (now, lock));
        let is_watched = in_flight.watched_until.is_some_and(|until| now < until);
        if !is_watched {
            in_flight.watched_until = Some(now + late * 4);
        }
        (number, is_watched)
    };
    if !is_watched {
        tokio::spawn(watch(Arc::clone(grants), late));
    }
    number
}

/// Looks for late releases while there are any: the task that sent one may no longer be polled.
async fn watch(grants: Arc<Grants>, late: Duration) {
    loop {
        sleep(late).await;
        let (locks, all) = grants.releases.take_late(late);
        locks.into_iter().for_each(|lock| grants.waiters.alarm_first(lock));
        if all {
            return;
        }
    }
}
