//! One of the processes that contend: it reads orders and writes what became of each.

use std::io::{BufWriter, Write, stdin, stdout};
use std::mem::take;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::sleep;
use std::time::Duration;

use clap::Parser;
use futures::poll;
use lockmacro_runtime::{Lock, LockError, LockManager};
use tokio::sync::{oneshot, watch};
use tokio::task::{spawn_blocking, unconstrained};
use tokio::time::{Instant, timeout_at};

use super::cell::{Contender, Order, Shape};
use super::turn::Turn;
use crate::Failure;
use crate::bare::{self, Bare};
use crate::measure::{cpu, now};

/// How long the poller waits between two questions.
const POLL: Duration = Duration::from_millis(10);
/// Between two who come one after another: time enough for the first one's question to be sent.
const STEP: Duration = Duration::from_micros(100);

pub async fn work(url: &str) -> Result<(), Failure> {
    let clients = Clients::connect(url).await?;
    let mut answers = BufWriter::new(stdout());
    for line in stdin().lines() {
        let order = Order::try_parse_from(line?.split_whitespace())?;
        let (turns, spent) = clients.carry_out(&order).await?;
        for turn in turns {
            writeln!(answers, "{turn}")?;
        }
        writeln!(answers, "cpu {}", spent.as_nanos())?;
        answers.flush()?;
    }
    Ok(())
}

#[derive(Clone)]
struct Clients {
    locks: LockManager,
    rslock: rslock::LockManager,
    bare: Bare,
}

impl Clients {
    async fn connect(url: &str) -> Result<Self, Failure> {
        let locks = LockManager::connect(url).await?;
        let rslock = rslock::LockManager::from_clients(vec![bare::client(url)?]);
        Ok(Self { locks, rslock, bare: Bare::connect(url).await? })
    }

    async fn carry_out(&self, order: &Order) -> Result<(Vec<Turn>, Duration), Failure> {
        // Nothing else is to be done on this thread.
        sleep(Duration::from_nanos(order.start.saturating_sub(now())));
        let before = cpu();
        let limit = Instant::now() + order.shape.limit();
        let (all_asked, told) = watch::channel(order.shape != Shape::Line);
        let (ended, all) = Ended::new();
        for number in 0..order.tasks {
            let who =
                Who { clients: self.clone(), order: order.clone(), told: told.clone(), number };
            let mut task = Box::pin(who.contend(limit));
            // The first poll is the question, so that they ask one after another.
            match poll!(pin!(unconstrained(task.as_mut()))) {
                Poll::Ready(turns) => ended.note(turns),
                Poll::Pending => {
                    let ended = ended.clone();
                    tokio::spawn(async move { ended.note(task.await) });
                }
            }
            if order.shape == Shape::Line {
                sleep(STEP);
            }
        }
        all_asked.send_replace(true);
        drop(ended);
        let turns = all.await?.into_iter().collect::<Result<Vec<_>, _>>()?;
        if turns.len() != order.tasks as usize {
            return Err("not everybody has told what became of it".into());
        }
        Ok((turns.concat(), cpu() - before))
    }
}

/// The results of all callers, sent when the last one has ended: a message of each would wake a
/// thread for each, and the callers contend for the processors.
#[derive(Clone)]
struct Ended(Arc<Everybody>);

type Turns = Result<Vec<Turn>, Failure>;

struct Everybody {
    turns: Mutex<Vec<Turns>>,
    all: Option<oneshot::Sender<Vec<Turns>>>,
}

impl Ended {
    fn new() -> (Self, oneshot::Receiver<Vec<Turns>>) {
        let (all, told) = oneshot::channel();
        (Self(Arc::new(Everybody { turns: Mutex::default(), all: Some(all) })), told)
    }

    fn note(&self, turns: Turns) {
        self.0.turns.lock().unwrap_or_else(PoisonError::into_inner).push(turns);
    }
}

impl Drop for Everybody {
    fn drop(&mut self) {
        let turns = take(self.turns.get_mut().unwrap_or_else(PoisonError::into_inner));
        if let Some(all) = self.all.take() {
            // Who waits for it may have failed.
            let _ = all.send(turns);
        }
    }
}

/// One of those who want the lock.
struct Who {
    clients: Clients,
    order: Order,
    /// Whether all have asked who are to ask before anybody has done with the lock.
    told: watch::Receiver<bool>,
    number: u32,
}

impl Who {
    /// Wants the lock until it is enough.
    async fn contend(mut self, limit: Instant) -> Turns {
        let until = self.order.start + u64::try_from(self.order.shape.lasts().as_nanos())?;
        let mut turns = Vec::new();
        loop {
            let asked = now();
            let served = timeout_at(limit, self.lock()).await.ok().transpose()?;
            turns.push(Turn { asked, served });
            if served.is_none() || now() >= until {
                return Ok(turns);
            }
        }
    }

    /// Waits for the lock as long as it takes, holds it and gives it back.
    async fn lock(&mut self) -> Result<(u64, u64), Failure> {
        let Self { clients, order, told, number } = self;
        let (key, ttl) = (order.key.as_str(), order.contender.ttl());
        match order.contender {
            Contender::Lockmacro | Contender::Confirmed => {
                let lock = Lock::new(key).ttl(ttl).wait_forever().manager(&clients.locks);
                Ok(lock.run(async { Ok::<_, LockError>(body(told, order.hold).await) }).await?)
            }
            Contender::Rslock => {
                // It gives up after three tries, and then begins anew.
                let guard = clients.rslock.acquire(key, ttl).await?;
                let held = body(told, order.hold).await;
                guard.release().await;
                Ok(held)
            }
            Contender::Unlocked => Ok(body(told, order.hold).await),
            Contender::Poll => {
                let token = format!("bare/{}/{number}", std::process::id());
                while !clients.bare.set(key, &token, ttl).await? {
                    tokio::time::sleep(POLL).await;
                }
                let held = body(told, order.hold).await;
                clients.bare.release(key, &token).await?;
                Ok(held)
            }
        }
    }
}

/// Gives the times of its begin and end.
async fn body(told: &mut watch::Receiver<bool>, hold: u64) -> (u64, u64) {
    let began = now();
    // It is told in the end, whatever happens.
    let _ = told.wait_for(|told| *told).await;
    if hold > 0 {
        let hold = Duration::from_millis(hold);
        // The timers of tokio would make two of one millisecond.
        let _ = spawn_blocking(move || sleep(hold)).await;
    }
    (began, now())
}
