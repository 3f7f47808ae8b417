//! A primary with replicas, and failovers. The name `primary` leads to the server that is the
//! primary, as the address of a failover does.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use crate::processes::network::{Event, Network, What};
use crate::processes::sim::sim;
use crate::server::{Change, ReplicaId};

#[derive(Default)]
pub(crate) struct Replicas {
    /// The host of the primary.
    pub(crate) primary: Cell<usize>,
    /// Counts the primaries, and their starts. What an earlier one has sent is lost.
    epoch: Cell<u64>,
    /// One for each host; none where there are no replicas.
    feeds: RefCell<Vec<Feed>>,
    /// How many replicas have to acknowledge a lock.
    acks: usize,
    /// The last change that any replica of this primary has acknowledged.
    acknowledged: Cell<u64>,
}

/// What a replica gets from the primary.
#[derive(Default)]
struct Feed {
    /// The last change that was sent; `None` when it does not follow.
    sent: Option<u64>,
    on_the_way: VecDeque<Change>,
    /// When the last change arrives, and the last acknowledgement.
    last: (Duration, Duration),
}

impl Replicas {
    pub(crate) fn new(hosts: usize, acks: usize) -> Self {
        let feeds = (0..hosts).map(|_| Feed::default()).collect();
        Self { feeds: RefCell::new(feeds), acks, ..Self::default() }
    }

    pub(crate) fn are_there(&self) -> bool {
        !self.feeds.borrow().is_empty()
    }
}

impl Network {
    /// The servers that decide on a lock.
    pub(crate) fn voters(&self) -> std::ops::Range<usize> {
        let primary = self.replicas.primary.get();
        match self.replicas.are_there() {
            true => primary..primary + 1,
            false => 0..self.hosts.borrow().len(),
        }
    }

    /// Sends what the primary has changed to its replicas.
    pub(super) fn replicate(&self) {
        let primary = self.replicas.primary.get();
        let hosts = self.hosts.borrow();
        let mut arriving = Vec::new();
        for (host, feed) in self.replicas.feeds.borrow_mut().iter_mut().enumerate() {
            let Some(sent) = &mut feed.sent else { continue };
            for change in hosts[primary].server.changes_after(*sent) {
                *sent = change.offset;
                feed.on_the_way.push_back(change.clone());
                feed.last.0 = feed.last.0.max(self.arrives_at_all());
                arriving.push((feed.last.0, host));
            }
        }
        let epoch = self.replicas.epoch.get();
        for (at, host) in arriving {
            self.push(at, host, What::Change { epoch });
        }
        if let Some(at) = hosts[primary].next_timeout() {
            self.push(at, primary, What::Tick { epoch });
        }
    }

    /// Delivers what one server sends to another.
    pub(super) fn deliver_to_server(&self, event: Event) {
        let host = match event.what {
            What::Acknowledged { .. } => self.replicas.primary.get(),
            _ => event.link,
        };
        let until = self.hosts.borrow()[host].frozen_until;
        match event.what {
            What::Change { epoch } | What::Acknowledged { epoch, .. } | What::Tick { epoch }
                if !self.is_of_now(epoch) => {}
            _ if until > event.at => self.postpone(Event { at: until, ..event }),
            What::Change { .. } => self.change_arrives(event.link),
            What::Acknowledged { offset, .. } => self.acknowledgement_arrives(event.link, offset),
            _ => self.tick(event.link),
        }
    }

    /// Whether something is of this primary.
    fn is_of_now(&self, epoch: u64) -> bool {
        self.replicas.epoch.get() == epoch
    }

    /// A change arrives at a replica.
    fn change_arrives(&self, host: usize) {
        let offset = {
            let feeds = &mut *self.replicas.feeds.borrow_mut();
            let Some(change) = feeds[host].on_the_way.pop_front() else { return };
            self.hosts.borrow_mut()[host].server.apply(&change);
            change.offset
        };
        self.acknowledge(host, offset);
    }

    /// A replica sends an acknowledgement.
    fn acknowledge(&self, host: usize, offset: u64) {
        let at = {
            let last = &mut self.replicas.feeds.borrow_mut()[host].last.1;
            *last = self.arrives_at_all().max(*last);
            *last
        };
        self.push(at, host, What::Acknowledged { epoch: self.replicas.epoch.get(), offset });
    }

    /// An acknowledgement arrives at the primary.
    fn acknowledgement_arrives(&self, replica: usize, offset: u64) {
        if self.replicas.feeds.borrow()[replica].sent.is_none() {
            return;
        }
        let (primary, last) = (self.replicas.primary.get(), &self.replicas.acknowledged);
        last.set(offset.max(last.get()));
        let outputs = {
            let host = &mut self.hosts.borrow_mut()[primary];
            let now = host.clock(sim().now());
            host.server.acknowledge(ReplicaId(replica as u64), offset, now)
        };
        self.send(primary, outputs);
    }

    /// The time of a client that waits for replicas may be over.
    fn tick(&self, host: usize) {
        let outputs = {
            let host = &mut self.hosts.borrow_mut()[host];
            let now = host.clock(sim().now());
            host.server.tick(now)
        };
        self.send(host, outputs);
    }

    /// A server has ended: the primary, or a replica.
    pub(crate) fn leaves(&self, host: usize) {
        if !self.replicas.are_there() {
            return;
        }
        let primary = self.replicas.primary.get();
        if host == primary {
            self.replicas.epoch.set(self.replicas.epoch.get() + 1);
            self.replicas.feeds.borrow_mut().fill_with(Feed::default);
        } else {
            self.replicas.feeds.borrow_mut()[host] = Feed::default();
            self.hosts.borrow_mut()[primary].server.lose_replica(ReplicaId(host as u64));
        }
    }

    /// Every server that is up and follows nobody becomes a replica of the primary, with its data.
    pub(crate) fn rejoin(&self) {
        self.rejoin_but(None);
    }

    fn rejoin_but(&self, other: Option<usize>) {
        let primary = self.replicas.primary.get();
        let hosts = if self.replicas.are_there() { self.hosts.borrow().len() } else { 0 };
        for host in (0..hosts).filter(|host| *host != primary && Some(*host) != other) {
            let follows = self.replicas.feeds.borrow()[host].sent.is_some();
            let are_down = [host, primary].map(|host| self.hosts.borrow()[host].down);
            if follows || are_down != [false; 2] {
                continue;
            }
            let (outputs, offset) = {
                let mut hosts = self.hosts.borrow_mut();
                let snapshot = hosts[primary].server.snapshot();
                let outputs = hosts[host].server.follow(("primary".to_owned(), 6379), snapshot);
                (outputs, hosts[host].server.offset())
            };
            self.replicas.feeds.borrow_mut()[host] = Feed { sent: Some(offset), ..Feed::default() };
            trace!("s{host} follows s{primary}");
            self.send(host, outputs);
            self.acknowledge(host, offset);
        }
    }

    /// One of the replicas becomes the primary. The one before has ended, or is cut off from the
    /// others and does not know of it. Returns whether each lock that enough replicas have
    /// acknowledged is there.
    pub(crate) fn fail_over(&self, to: usize, ends: bool) -> bool {
        let replicas = &self.replicas;
        let old = replicas.primary.get();
        let follows = |host: &usize| replicas.feeds.borrow()[*host].sent.is_some();
        let count = self.hosts.borrow().len();
        let candidates: Vec<_> = (0..count).filter(follows).collect();
        let Some(new) = candidates.get(to % candidates.len().max(1)).copied() else { return true };
        if ends {
            self.hosts.borrow_mut()[old].down = true;
            self.end_all(old);
        }
        self.leaves(old);
        replicas.primary.set(new);
        let offset = {
            let server = &mut self.hosts.borrow_mut()[new].server;
            server.promote();
            server.offset()
        };
        let (known, all) = (replicas.acknowledged.get(), count - 1);
        trace!("s{new} is the primary, with the changes up to {offset}; acknowledged is {known}");
        replicas.acknowledged.set(offset);
        self.rejoin_but(Some(old));
        replicas.acks == all || offset >= known
    }
}
