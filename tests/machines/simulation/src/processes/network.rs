//! The network: bytes between processes and servers, and what delays, loses and cuts them.
//!
//! A connection is one of TCP: its bytes arrive in order or not at all. A client that gives up a
//! connection does not call back what it has sent: that may arrive much later.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::task::Waker;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::processes::host::Host;
use crate::processes::process::State;
use crate::processes::replicas::Replicas;
use crate::processes::scenario::ms;
use crate::processes::show::Shown;
use crate::processes::sim::sim;
use crate::server::{ConnectionId, Output};

pub(crate) struct Network {
    pub(crate) hosts: RefCell<Vec<Host>>,
    links: RefCell<Vec<Link>>,
    /// The link of each server's connection.
    accepted: RefCell<BTreeMap<(usize, ConnectionId), usize>>,
    events: RefCell<BinaryHeap<Reverse<Event>>>,
    sent: Cell<u64>,
    changed: Notify,
    random: RefCell<Rng>,
    /// The shortest and the longest delay of a message, in milliseconds.
    delay: (u64, u64),
    /// Until when bytes between a process and a host are held back.
    blocked: RefCell<BTreeMap<(usize, usize), Duration>>,
    /// No link is half-open any more, and new ones never are.
    healed: Cell<bool>,
    pub(super) replicas: Replicas,
}

/// One connection of a process.
pub(crate) struct Link {
    pub(crate) process: usize,
    pub(crate) host: usize,
    at_server: Option<ConnectionId>,
    pub(crate) inbox: Vec<u8>,
    pub(crate) reader: Option<Waker>,
    pub(crate) end: Option<io::ErrorKind>,
    pub(crate) dropped: bool,
    /// Whether bytes to the server, and to the client, vanish.
    lost: (bool, bool),
    /// When the last bytes arrive at the server, and at the client.
    last: (Duration, Duration),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub(super) at: Duration,
    pub(super) order: u64,
    pub(super) link: usize,
    pub(super) what: What,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// The client has sent this.
    ToServer(Vec<u8>),
    /// The server has sent this.
    ToClient(Vec<u8>),
    /// The client has closed the connection.
    Closed,
    /// The server has closed the connection.
    Ended,
    /// A replica gets a change. In place of a link this and the next ones have a host.
    Change { epoch: u64 },
    /// The primary gets an acknowledgement.
    Acknowledged { epoch: u64, offset: u64 },
    /// The primary looks whether anybody has waited for long enough.
    Tick { epoch: u64 },
}

impl Network {
    pub(crate) fn new(
        hosts: Vec<Host>,
        random: Rng,
        delay: (u64, u64),
        replicas: Replicas,
    ) -> Self {
        Self {
            hosts: RefCell::new(hosts),
            links: RefCell::default(),
            accepted: RefCell::default(),
            events: RefCell::default(),
            sent: Cell::new(0),
            changed: Notify::new(),
            random: RefCell::new(random),
            delay,
            blocked: RefCell::default(),
            healed: Cell::new(false),
            replicas,
        }
    }

    pub(super) fn delay(&self) -> Duration {
        let (least, most) = self.delay;
        Duration::from_millis(self.random.borrow_mut().u64(least..=most))
    }

    /// The additional delay of a message while there are faults: mostly none.
    fn slowness(&self) -> Duration {
        let random = &mut *self.random.borrow_mut();
        match sim().has_faults && !self.healed.get() && random.u8(..12) == 0 {
            true => ms(random.u64(..300)),
            false => Duration::ZERO,
        }
    }

    /// How long a grant takes at most after its first request, as long as nothing fails: in a few
    /// round trips, as a connection may have to be opened and a script to be loaded.
    pub(crate) fn longest_grant(&self) -> Duration {
        ms(20 * self.delay.1 + 30)
    }

    /// Until when bytes between these are held back.
    pub(super) fn blocked_until(&self, process: usize, host: usize) -> Duration {
        self.blocked.borrow().get(&(process, host)).copied().unwrap_or_default()
    }

    pub(crate) fn link<R>(&self, link: usize, look: impl FnOnce(&mut Link) -> R) -> R {
        look(&mut self.links.borrow_mut()[link])
    }

    /// The connections that servers have: their numbers, processes and hosts.
    pub(crate) fn open_links(&self) -> Vec<(usize, usize, usize)> {
        let links = self.links.borrow();
        let link = |nth: &usize| (*nth, links[*nth].process, links[*nth].host);
        self.accepted.borrow().values().map(link).collect()
    }

    pub(super) fn push(&self, at: Duration, link: usize, what: What) {
        let order = self.sent.replace(self.sent.get() + 1);
        self.events.borrow_mut().push(Reverse(Event { at, order, link, what }));
        self.changed.notify_one();
    }

    /// When something arrives that is sent from one server to another now.
    pub(super) fn arrives_at_all(&self) -> Duration {
        sim().now() + self.delay() + self.slowness()
    }

    fn arrives(&self, link: usize, to_server: bool) -> Duration {
        let now = sim().now();
        // A server takes some time for each request.
        let at = now + self.delay() + self.slowness() + ms(u64::from(to_server));
        self.link(link, |link| {
            let until = self.blocked_until(link.process, link.host);
            let last = if to_server { &mut link.last.0 } else { &mut link.last.1 };
            *last = at.max(until).max(*last);
            *last
        })
    }

    /// A client writes.
    pub(crate) fn write(&self, link: usize, bytes: &[u8]) {
        let process = self.link(link, |link| link.process);
        sim().tokens.sent(link, process, bytes);
        if self.link(link, |link| link.lost.0) {
            trace!("-> #{link} lost: {}", Shown(bytes));
            return;
        }
        trace!("-> #{link} {}", Shown(bytes));
        self.push(self.arrives(link, true), link, What::ToServer(bytes.to_vec()));
    }

    /// A client closes its end.
    pub(crate) fn close(&self, link: usize) {
        let (ended, lost) = self.link(link, |link| {
            link.dropped = true;
            (link.end.is_some(), link.lost.0)
        });
        if !ended && !lost {
            self.push(self.arrives(link, true), link, What::Closed);
        }
    }

    /// Delivers bytes until the simulation ends.
    pub async fn run(&self) {
        loop {
            let next = self.events.borrow().peek().map(|Reverse(event)| event.at);
            let now = sim().now();
            match next {
                Some(at) if at <= now => {
                    let Reverse(event) = self.events.borrow_mut().pop().expect("it was there");
                    self.deliver(event);
                }
                Some(at) => drop(timeout(at - now, self.changed.notified()).await),
                None => self.changed.notified().await,
            }
        }
    }

    fn deliver(&self, event: Event) {
        if let What::Change { .. } | What::Acknowledged { .. } | What::Tick { .. } = event.what {
            return self.deliver_to_server(event);
        }
        let Event { at, link, what, .. } = event;
        let (process, host, id) = self.link(link, |link| (link.process, link.host, link.at_server));
        // Held back meanwhile.
        let until = self.blocked_until(process, host);
        let until = match what {
            What::ToServer(_) | What::Closed => until.max(self.hosts.borrow()[host].frozen_until),
            _ => until,
        };
        if until > at {
            return self.postpone(Event { at: until, link, what, order: event.order });
        }
        match what {
            What::ToServer(bytes) => {
                let Some(id) = id else { return };
                self.receive(host, id, &bytes);
            }
            What::Closed => {
                if let Some(id) = id {
                    self.forget(host, link, id);
                }
            }
            What::ToClient(bytes) => {
                if self.link(link, |link| link.lost.1 || link.dropped) {
                    trace!("<- #{link} nobody reads: {}", Shown(&bytes));
                    return;
                }
                trace!("<- #{link} p{process} {}", Shown(&bytes));
                let reader = self.link(link, |link| {
                    link.inbox.extend(bytes);
                    link.reader.take()
                });
                reader.into_iter().for_each(Waker::wake);
            }
            _ => self.reset(link, io::ErrorKind::UnexpectedEof),
        }
    }

    /// Delivers an event later, and after it whatever follows on its link.
    pub(super) fn postpone(&self, event: Event) {
        self.events.borrow_mut().push(Reverse(event));
    }

    fn receive(&self, host: usize, id: ConnectionId, bytes: &[u8]) {
        let outputs = self.hosts.borrow_mut()[host].receive(id, bytes, sim().now());
        sim().callers.look();
        self.send(host, outputs);
        if self.replicas.are_there() {
            self.replicate();
        }
    }

    /// Sends what a server has to say.
    pub(super) fn send(&self, host: usize, outputs: Vec<Output>) {
        for output in outputs {
            let (to, what) = match output {
                Output::Send(to, bytes) => (to, What::ToClient(bytes)),
                Output::Close(to) => (to, What::Ended),
            };
            let Some(link) = self.accepted.borrow().get(&(host, to)).copied() else { continue };
            match &what {
                What::ToClient(bytes) => trace!("   s{host} to #{link}: {}", Shown(bytes)),
                _ => trace!("   s{host} closes #{link}"),
            }
            if what == What::Ended {
                self.forget(host, link, to);
            }
            if !self.link(link, |link| link.lost.1) {
                self.push(self.arrives(link, false), link, what);
            }
        }
    }

    fn forget(&self, host: usize, link: usize, id: ConnectionId) {
        self.accepted.borrow_mut().remove(&(host, id));
        self.link(link, |link| link.at_server = None);
        self.hosts.borrow_mut()[host].server.disconnect(id);
    }

    /// Ends a link for its client.
    fn reset(&self, link: usize, kind: io::ErrorKind) {
        let reader = self.link(link, |link| {
            link.end.get_or_insert(kind);
            link.reader.take()
        });
        reader.into_iter().for_each(Waker::wake);
    }

    /// Cuts links: the clients notice at once. What is on its way to a server arrives or not.
    pub(crate) fn cut(&self, mut which: impl FnMut(&Link) -> bool, loses: bool) {
        let all = self.links.borrow().len();
        for link in 0..all {
            let hit = self.link(link, |link| link.at_server.is_some() && which(link));
            if !hit {
                continue;
            }
            trace!("#{link} is cut{}", if loses { " with all on its way" } else { "" });
            self.reset(link, io::ErrorKind::ConnectionReset);
            match loses {
                true => {
                    let (host, id) = self.link(link, |link| (link.host, link.at_server));
                    self.forget(host, link, id.expect("it is open"));
                }
                false => self.push(self.arrives(link, true), link, What::Closed),
            }
        }
    }

    /// Makes bytes vanish on links that stay open: those to servers, to clients, or both.
    pub(crate) fn half_open(&self, mut which: impl FnMut(&Link) -> bool, lost: (bool, bool)) {
        if self.healed.get() {
            return;
        }
        for (nth, link) in self.links.borrow_mut().iter_mut().enumerate() {
            if link.at_server.is_some() && !link.dropped && which(link) {
                trace!("#{nth} loses bytes to the server: {}, to the client: {}", lost.0, lost.1);
                link.lost = (link.lost.0 | lost.0, link.lost.1 | lost.1);
            }
        }
    }

    /// Holds bytes between a process and a host back.
    pub(crate) fn block(&self, process: usize, host: usize, until: Duration) {
        let mut blocked = self.blocked.borrow_mut();
        let at = blocked.entry((process, host)).or_default();
        *at = until.max(*at);
    }

    /// Closes all connections of a server, as its end does.
    pub(crate) fn end_all(&self, host: usize) {
        let ours: Vec<_> = {
            let accepted = self.accepted.borrow();
            let ours = accepted.iter().filter(|((at, _), _)| *at == host);
            ours.map(|((_, id), link)| (*id, *link)).collect()
        };
        for (id, link) in ours {
            self.forget(host, link, id);
            if !self.link(link, |link| link.lost.1) {
                self.push(self.arrives(link, false), link, What::Ended);
            }
        }
    }

    /// A server accepts a connection; returns its number, or an error where no server runs.
    pub(super) fn accept(&self, process: usize, host: usize) -> io::Result<usize> {
        let id = {
            let host = &mut self.hosts.borrow_mut()[host];
            if host.down {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            host.server.connect()
        };
        let mut links = self.links.borrow_mut();
        let nth = links.len();
        links.push(Link {
            process,
            host,
            at_server: Some(id),
            inbox: Vec::new(),
            reader: None,
            end: None,
            dropped: false,
            lost: (false, false),
            last: Default::default(),
        });
        self.accepted.borrow_mut().insert((host, id), nth);
        Ok(nth)
    }

    /// Ends all faults. Whoever is at a half-open connection learns that it is gone.
    pub(crate) fn heal(&self) {
        self.healed.set(true);
        self.blocked.borrow_mut().clear();
        self.cut(|link| link.lost != (false, false), true);
        let sim = sim();
        self.cut(|link| sim.process(link.process).state() == State::Dead, true);
        self.changed.notify_one();
    }
}
