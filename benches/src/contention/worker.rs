//! One of the processes that contend: it reads orders, and writes the results of each.

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

/// How long the poller waits between two requests.
const POLL: Duration = Duration::from_millis(10);
/// Time between two callers that arrive one after another, in which the request of the first one is
/// sent.
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
    /// What the callers of this process have before they ask the server.
    mutex: Arc<tokio::sync::Mutex<()>>,
}

impl Clients {
    async fn connect(url: &str) -> Result<Self, Failure> {
        let locks = LockManager::connect(url).await?;
        let rslock = rslock::LockManager::from_clients(vec![bare::client(url)?]);
        Ok(Self { locks, rslock, bare: Bare::connect(url).await?, mutex: Arc::default() })
    }

    async fn carry_out(&self, order: &Order) -> Result<(Vec<Turn>, Duration), Failure> {
        // Blocks the thread, as it has nothing else to do.
        sleep(Duration::from_nanos(order.start.saturating_sub(now())));
        let before = cpu();
        let limit = Instant::now() + order.shape.limit();
        let (set_all_asked, all_asked) = watch::channel(order.shape != Shape::Line);
        let (ended, all) = Ended::new();
        for number in 0..order.tasks {
            let caller = Caller {
                clients: self.clone(),
                order: order.clone(),
                all_asked: all_asked.clone(),
                number,
            };
            let mut task = Box::pin(caller.contend(limit));
            // The first poll sends the request, so that the callers ask one after another.
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
        set_all_asked.send_replace(true);
        drop(ended);
        let turns = all.await?.into_iter().collect::<Result<Vec<_>, _>>()?;
        if turns.len() != order.tasks as usize {
            return Err("the results of some callers are missing".into());
        }
        Ok((turns.concat(), cpu() - before))
    }
}

/// The results of all callers, sent when the last one has ended. A message from each caller would
/// wake a thread each time, and take processor time from the callers.
#[derive(Clone)]
struct Ended(Arc<Results>);

type Turns = Result<Vec<Turn>, Failure>;

struct Results {
    turns: Mutex<Vec<Turns>>,
    all: Option<oneshot::Sender<Vec<Turns>>>,
}

impl Ended {
    fn new() -> (Self, oneshot::Receiver<Vec<Turns>>) {
        let (all, results) = oneshot::channel();
        (Self(Arc::new(Results { turns: Mutex::default(), all: Some(all) })), results)
    }

    fn note(&self, turns: Turns) {
        self.0.turns.lock().unwrap_or_else(PoisonError::into_inner).push(turns);
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        let turns = take(self.turns.get_mut().unwrap_or_else(PoisonError::into_inner));
        if let Some(all) = self.all.take() {
            // Fails when the receiver has failed.
            let _ = all.send(turns);
        }
    }
}

/// One caller that contends for the lock.
struct Caller {
    clients: Clients,
    order: Order,
    /// True once all callers have asked that have to ask before the first body ends.
    all_asked: watch::Receiver<bool>,
    number: u32,
}

impl Caller {
    /// Acquires the lock again and again until the order ends.
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

    /// Waits for the lock without a limit, holds it and releases it.
    async fn lock(&mut self) -> Result<(u64, u64), Failure> {
        let Self { clients, order, all_asked, number } = self;
        let (key, ttl) = (order.key.as_str(), order.contender.ttl());
        match order.contender {
            Contender::Lockmacro | Contender::Confirmed => {
                let lock = Lock::new(key).ttl(ttl).wait_forever().manager(&clients.locks);
                Ok(lock
                    .run(async { Ok::<_, LockError>(body(all_asked, order.hold).await) })
                    .await?)
            }
            Contender::Rslock => {
                // `acquire` tries again and again, three tries at a time.
                let guard = clients.rslock.acquire(key, ttl).await?;
                let held = body(all_asked, order.hold).await;
                guard.release().await;
                Ok(held)
            }
            Contender::Unlocked => Ok(body(all_asked, order.hold).await),
            Contender::Poll | Contender::Mutex => {
                let _alone = match order.contender {
                    Contender::Mutex => Some(Arc::clone(&clients.mutex).lock_owned().await),
                    _ => None,
                };
                let token = format!("bare/{}/{number}", std::process::id());
                while !clients.bare.set(key, &token, ttl).await? {
                    tokio::time::sleep(POLL).await;
                }
                let held = body(all_asked, order.hold).await;
                clients.bare.release(key, &token).await?;
                Ok(held)
            }
        }
    }
}

/// Returns the times at which the body begins and ends.
async fn body(all_asked: &mut watch::Receiver<bool>, hold: u64) -> (u64, u64) {
    let began = now();
    // The value is set, or its sender is dropped, in every case.
    let _ = all_asked.wait_for(|all_asked| *all_asked).await;
    if hold > 0 {
        let hold = Duration::from_millis(hold);
        // The timers of tokio would wait two milliseconds for one.
        let _ = spawn_blocking(move || sleep(hold)).await;
    }
    (began, now())
}
