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
use crate::error::Failure;
use crate::grpc::{Connection, Stream};

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
    /// To the task. A task ends with its runtime.
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
    pub(crate) fn is_held(&self, name: &str, revision: i64) {
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

/// The task. It ends with the store.
async fn watch(client: Arc<Client>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut watched = HashMap::new();
    loop {
        // A stream is opened when there is something to watch.
        while watched.is_empty() {
            match orders.recv().await {
                None => return,
                Some(Order::Forget(_)) => {}
                Some(Order::Watch(id, key)) => drop(watched.insert(id, key)),
            }
        }
        if let Ok(on) = client.connection().await {
            if follow(&on, &mut orders, &mut watched).await.is_ok() {
                return;
            }
            client.leave(&on).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Watches on one stream until the store is dropped, or the stream fails.
async fn follow(
    on: &Connection,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    watched: &mut HashMap<i64, Watched>,
) -> Result<(), Failure> {
    let mut stream = on.stream(api::WATCH).await?;
    let begin = |stream: &mut Stream, id, key: &Watched| {
        stream.send(&api::watch(id, &key.key, key.after), false)
    };
    for (id, key) in &*watched {
        begin(&mut stream, *id, key)?;
    }
    loop {
        let next = match select(pin!(orders.recv()), pin!(stream.next())).await {
            Either::Left((order, _)) => Either::Left(order),
            Either::Right((answer, _)) => Either::Right(answer),
        };
        match next {
            Either::Left(None) => return Ok(()),
            Either::Left(Some(Order::Watch(id, key))) => {
                begin(&mut stream, id, &key)?;
                watched.insert(id, key);
            }
            Either::Left(Some(Order::Forget(id))) => {
                if watched.remove(&id).is_some() {
                    stream.send(&api::unwatch(id), false)?;
                }
            }
            Either::Right(Ok(Some(answer))) => {
                // After a compaction nobody knows what became of the key.
                if api::has_events(&answer) || api::is_compacted(&answer) {
                    let id = api::watch_id(&answer);
                    if let Some(key) = watched.remove(&id) {
                        let _ = key.freed.send(());
                        stream.send(&api::unwatch(id), false)?;
                    }
                }
            }
            Either::Right(end) => {
                end?;
                return Err(Failure::unanswered("the watch has ended"));
            }
        }
    }
}
