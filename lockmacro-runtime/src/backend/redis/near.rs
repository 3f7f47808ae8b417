//! Who waits by the manager that gives the lock back: the answer to the release tells which of them
//! has it now, which spares the server a message and the runtime a wake-up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::grants::Grants;
use super::node::Node;
use crate::key::LockKey;
use crate::side::slot;

/// An answer that takes so much of a manager's timeout is not waited for by who may have the lock.
const LATE: u32 = 8;

/// Releases of a manager whose answers are for its waiters, too.
#[derive(Debug, Default)]
pub(super) struct Releases(Mutex<UnderWay>);

#[derive(Debug, Default)]
struct UnderWay {
    last: u64,
    /// When they were sent, and the slots of their locks.
    releases: HashMap<u64, (Instant, u16)>,
    /// Whether a task looks after them.
    minded: bool,
}

/// One release. Unless it is told of its answer, those who wait in the slot ask.
pub(super) struct Near {
    node: Node,
    connection: u64,
    slot: u16,
    number: u64,
    told: bool,
}

impl Near {
    /// A release that is about to be sent; `None` when nobody waits at this node, whatever for.
    pub(super) fn of(node: &Node, key: &LockKey) -> Option<Self> {
        let grants = node.grants();
        if grants.waiters.are_none() {
            return None;
        }
        let (connection, slot) = (node.connection()?, slot(key.as_str()));
        let number = Releases::add(grants, slot, node.inner.timeout / LATE);
        Some(Self { node: node.clone(), connection, slot, number, told: false })
    }

    /// The channel of those who wait here.
    pub(super) fn channel(&self) -> String {
        self.node.grants().channel(self.slot)
    }

    /// Takes note of the answer, and passes on what it has for one who waits.
    pub(super) fn answered(mut self, word: Option<&[u8]>) {
        self.told = word.is_none_or(|word| self.node.pass_on(self.connection, word));
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        let grants = self.node.grants();
        grants.releases.under_way().releases.remove(&self.number);
        if !self.told {
            grants.waiters.alarm_first(self.slot);
        }
    }
}

impl Releases {
    fn add(grants: &Arc<Grants>, slot: u16, late: Duration) -> u64 {
        let mut under_way = grants.releases.under_way();
        under_way.last += 1;
        let number = under_way.last;
        under_way.releases.insert(number, (Instant::now(), slot));
        if !under_way.minded {
            under_way.minded = true;
            tokio::spawn(Minder(Arc::clone(grants)).mind(late));
        }
        number
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        // Nothing that runs under this mutex can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks after releases while there are any: who sent one may not be polled any more.
struct Minder(Arc<Grants>);

impl Minder {
    async fn mind(self, late: Duration) {
        while !self.0.releases.under_way().releases.is_empty() {
            sleep(late).await;
            let mut slots = Vec::new();
            self.0.releases.under_way().releases.retain(|_, (sent, slot)| {
                let is_late = sent.elapsed() >= late;
                slots.extend(is_late.then_some(*slot));
                !is_late
            });
            slots.into_iter().for_each(|slot| self.0.waiters.alarm_first(slot));
        }
    }
}

impl Drop for Minder {
    fn drop(&mut self) {
        self.0.releases.under_way().minded = false;
    }
}
