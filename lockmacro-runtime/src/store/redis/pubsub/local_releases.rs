//! Who waits by the manager that gives the lock back: the answer to the release tells which of them
//! has it now, which spares the server a message and the runtime a wake-up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::redis::client::node::Node;
use crate::store::redis::pubsub::channels::Grants;
use crate::value::key::LockKey;
use crate::value::token::hash_of;

/// An answer that takes so much of a manager's timeout is not waited for by who may have the lock.
const LATE_FRACTION: u32 = 8;

/// One release. Unless it is answered of its answer, those who wait for the lock ask.
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
    /// A release that is about to be sent; `None` when nobody waits at this node, whatever for.
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

    /// The channel of those who wait here.
    pub(crate) fn channel(&self) -> String {
        self.grants.channel(0)
    }

    /// Takes note of the answer, and passes on what it has for one who waits.
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
    let (number, watched_until) = {
        let (mut in_flight, now) = (grants.releases.in_flight(), Instant::now());
        in_flight.last += 1;
        let number = in_flight.last;
        in_flight.releases.insert(number, (now, lock));
        let watched_until = in_flight.watched_until.is_some_and(|until| now < until);
        if !watched_until {
            in_flight.watched_until = Some(now + late * 4);
        }
        (number, watched_until)
    };
    if !watched_until {
        tokio::spawn(watch(Arc::clone(grants), late));
    }
    number
}

/// Looks after releases while there are any: who sent one may not be polled any more.
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
