//! Who waits by the manager that gives the lock back: the answer to the release tells which of them
//! has it now, which spares the server a message and the runtime a wake-up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::redis::client::node::Node;
use crate::store::redis::pubsub::channels::Grants;
use crate::value::key::LockKey;
use crate::value::token::hash_of;

/// An answer that takes so much of a manager's timeout is not waited for by who may have the lock.
const LATE: u32 = 8;

/// Releases of a manager whose answers are for its waiters, too.
#[derive(Debug, Default)]
pub(crate) struct Releases(Mutex<UnderWay>);

#[derive(Debug, Default)]
struct UnderWay {
    last: u64,
    /// When they were sent, and for which locks.
    releases: HashMap<u64, (Instant, u64)>,
    /// Until when a task is known to look after them. It may be on a runtime that has ended.
    minded: Option<Instant>,
}

/// One release. Unless it is told of its answer, those who wait for the lock ask.
pub(crate) struct Near {
    node: Node,
    connection: u64,
    /// The lock's number, see [`Waiters::join`](crate::store::waiters::Waiters::join).
    lock: u64,
    number: u64,
    told: bool,
}

impl Near {
    /// A release that is about to be sent; `None` when nobody waits at this node, whatever for.
    pub(crate) fn of(node: &Node, key: &LockKey) -> Option<Self> {
        let grants = node.grants();
        if grants.waiters.are_none() {
            return None;
        }
        let (connection, lock) = (node.connection()?, hash_of(key.as_str().as_bytes()));
        let number = Releases::add(grants, lock, node.inner.timeout / LATE);
        Some(Self { node: node.clone(), connection, lock, number, told: false })
    }

    /// The channel of those who wait here.
    pub(crate) fn channel(&self) -> String {
        self.node.grants().channel(0)
    }

    /// Takes note of the answer, and passes on what it has for one who waits.
    pub(crate) fn answered(mut self, word: Option<&[u8]>) {
        self.told = word.is_none_or(|word| self.node.pass_on(self.connection, word));
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let grants = self.node.grants();
        grants.releases.under_way().releases.remove(&self.number);
        if !self.told {
            grants.waiters.alarm_first(self.lock);
        }
    }
}

impl Releases {
    fn add(grants: &Arc<Grants>, lock: u64, late: Duration) -> u64 {
        let (number, minded) = {
            let (mut under_way, now) = (grants.releases.under_way(), Instant::now());
            under_way.last += 1;
            let number = under_way.last;
            under_way.releases.insert(number, (now, lock));
            let minded = under_way.minded.is_some_and(|until| now < until);
            if !minded {
                under_way.minded = Some(now + late * 4);
            }
            (number, minded)
        };
        if !minded {
            tokio::spawn(mind(Arc::clone(grants), late));
        }
        number
    }

    /// Takes those out that are late; tells for which locks they are, and whether that were all.
    fn late(&self, late: Duration) -> (Vec<u64>, bool) {
        let (mut under_way, now) = (self.under_way(), Instant::now());
        let mut locks = Vec::new();
        under_way.releases.retain(|_, (sent, lock)| {
            let is_late = now >= *sent + late;
            locks.extend(is_late.then_some(*lock));
            !is_late
        });
        under_way.minded = (!under_way.releases.is_empty()).then(|| now + late * 4);
        (locks, under_way.minded.is_none())
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        // Nothing that runs under this mutex can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks after releases while there are any: who sent one may not be polled any more.
async fn mind(grants: Arc<Grants>, late: Duration) {
    loop {
        sleep(late).await;
        let (locks, all) = grants.releases.late(late);
        locks.into_iter().for_each(|lock| grants.waiters.alarm_first(lock));
        if all {
            return;
        }
    }
}
