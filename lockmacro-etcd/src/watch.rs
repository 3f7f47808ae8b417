//! The keys that callers of this process wait for, watched on one stream.
//!
//! A task owns the stream. When the stream ends, it opens another one and watches every key from
//! the revision on that it had, so that no deletion is missed.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::{mpsc, oneshot};

use crate::api;
use crate::client::Client;
use crate::grpc::{Connection, Messages};
use crate::wire::Message;

/// Between two attempts to open a stream. Waiters ask by themselves meanwhile.
const PAUSE: Duration = Duration::from_millis(100);
/// How many answers are remembered.
const REMEMBERED: usize = 1_000;

/// What callers wait for.
#[derive(Debug)]
pub(crate) struct Watch {
    client: Arc<Client>,
    /// The revision at which each key was held by somebody else.
    held: Mutex<HashMap<String, i64>>,
    next_id: AtomicI64,
    /// To the task, which ends when there is no sender left, or with its runtime.
    orders: Mutex<Option<mpsc::UnboundedSender<Order>>>,
}

#[derive(Debug)]
enum Order {
    Watch(i64, Watched),
    Forget(i64),
}

#[derive(Debug)]
struct Watched {
    key: Vec<u8>,
    after: i64,
    freed: oneshot::Sender<()>,
}

impl Watch {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            held: Mutex::default(),
            next_id: AtomicI64::new(1),
            orders: Mutex::default(),
        }
    }

    /// Remembers that a key was held at a revision, as its caller may wait for it next.
    pub(crate) fn note_held(&self, name: &str, revision: i64) {
        let mut held = lock(&self.held);
        // Those who did not wait have left theirs.
        if held.len() >= REMEMBERED {
            held.clear();
        }
        held.insert(name.to_owned(), revision);
    }

    /// Lasts until the key is deleted, from the answer on that it was held.
    pub(crate) async fn freed(&self, name: &str, key: Vec<u8>) {
        let Some(after) = lock(&self.held).remove(name) else {
            // Nothing tells since when: the caller's next question does.
            return std::future::pending().await;
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (freed, is_freed) = oneshot::channel();
        let orders = self.order(Order::Watch(id, Watched { key, after, freed }));
        let _forget = Forget { id, orders };
        // An error says that the task has ended: asking again is right then, too.
        let _ = is_freed.await;
    }

    /// Ends the task when those who wait now wait no longer.
    pub(crate) fn close(&self) {
        *lock(&self.orders) = None;
    }

    /// Sends an order to the task, which is started if there is none.
    fn order(&self, mut order: Order) -> mpsc::UnboundedSender<Order> {
        let mut orders = lock(&self.orders);
        loop {
            let sender = orders.get_or_insert_with(|| {
                let (sender, received) = mpsc::unbounded_channel();
                tokio::spawn(watch(Arc::clone(&self.client), received));
                sender
            });
            match sender.send(order) {
                Ok(()) => return sender.clone(),
                Err(unsent) => order = unsent.0,
            }
            *orders = None;
        }
    }
}

/// What is in these mutexes is whole at any time, also if a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets a key when its caller waits no longer.
struct Forget {
    id: i64,
    orders: mpsc::UnboundedSender<Order>,
}

impl Drop for Forget {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Forget(self.id));
    }
}

/// The task. It ends, with `None`, as soon as nobody can give orders any more.
async fn watch(client: Arc<Client>, orders: mpsc::UnboundedReceiver<Order>) -> Option<()> {
    let mut task = Task { orders, watched: HashMap::new(), messages: None };
    loop {
        // A stream is opened when there is something to watch.
        if task.watched.is_empty() {
            let order = task.orders.recv().await?;
            task.obey(order);
            continue;
        }
        // A stream that fails says nothing of the node: the requests of its callers do.
        if let Ok(on) = task.during(client.connection()).await? {
            task.follow(&on).await?;
            task.messages = None;
        }
        task.during(tokio::time::sleep(PAUSE)).await?;
    }
}

struct Task {
    orders: mpsc::UnboundedReceiver<Order>,
    watched: HashMap<i64, Watched>,
    /// To the node, while there is a stream.
    messages: Option<Messages>,
}

impl Task {
    /// Watches on one stream until it fails.
    async fn follow(&mut self, on: &Connection) -> Option<()> {
        let Ok((messages, mut answers)) = on.stream(api::WATCH).await else { return Some(()) };
        let messages = self.messages.insert(messages);
        for (id, key) in &self.watched {
            let _ = messages.send(&api::watch(*id, &key.key, key.after), false);
        }
        while let Ok(Some(answer)) = self.during(answers.next()).await? {
            // After a compaction nobody knows what became of the key.
            if api::has_events(&answer) || api::is_compacted(&answer) {
                self.forget(api::watch_id(&answer));
            }
        }
        Some(())
    }

    /// Waits for something, and obeys meanwhile.
    async fn during<T>(&mut self, something: impl Future<Output = T>) -> Option<T> {
        let mut something = pin!(something);
        loop {
            let order = match select(pin!(self.orders.recv()), something.as_mut()).await {
                Either::Left((order, _)) => order?,
                Either::Right((done, _)) => return Some(done),
            };
            self.obey(order);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Watch(id, key) => {
                self.tell(&api::watch(id, &key.key, key.after));
                self.watched.insert(id, key);
            }
            Order::Forget(id) => self.forget(id),
        }
    }

    /// Ends a watch. Whoever waits for it is told.
    fn forget(&mut self, id: i64) {
        if let Some(key) = self.watched.remove(&id) {
            let _ = key.freed.send(());
            self.tell(&api::unwatch(id));
        }
    }

    /// What cannot be sent ends the answers, too, so the next stream begins with it.
    fn tell(&mut self, message: &Message) {
        if let Some(messages) = &mut self.messages {
            let _ = messages.send(message, false);
        }
    }
}
