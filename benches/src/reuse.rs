//! One caller makes a value for all: by `reuse`, by plain waiters that look into a cache under
//! their lock, and by `SET NX` with a poll. And how soon a leader that ends is followed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::Server;
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::sleep;

use crate::Failure;
use crate::measure::Spread;

const TTL: Duration = Duration::from_secs(30);
/// How long the value takes to make.
const WORK: Duration = Duration::from_millis(30);
/// How often a poller looks.
const POLL: Duration = Duration::from_millis(50);
const CALLERS: usize = 100;
const PROCESSES: usize = 4;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Reuse,
    Waiters,
    Poll,
}

const KINDS: [(Kind, &str); 3] = [
    (Kind::Reuse, "`on_busy = reuse`"),
    (Kind::Waiters, "`wait`, and a cache"),
    (Kind::Poll, "`SET NX`, and a poll each 50 ms"),
];

/// What each process has.
struct Process {
    locks: LockManager,
    connection: MultiplexedConnection,
}

pub async fn run(server: &Server, rounds: u32) -> Result<(), Failure> {
    let client = redis::Client::open(server.url())?;
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        let locks = LockManager::connect(&server.url()).await?;
        let connection = client.get_multiplexed_async_connection().await?;
        processes.push(Arc::new(Process { locks, connection }));
    }
    let mut times: [Vec<f64>; KINDS.len()] = Default::default();
    let mut terms = Vec::new();
    for round in 0..=rounds {
        for (nth, (kind, _)) in KINDS.into_iter().enumerate() {
            let time = last_has_it(&processes, kind, round).await?;
            if round > 0 {
                times[nth].push(time.as_secs_f64() * 1e3);
            }
        }
        terms.push(follows(server, round).await?.as_secs_f64() * 1e3);
    }
    println!("{CALLERS} callers of {PROCESSES} processes want a value that is made in {WORK:?}.");
    println!("From its end until the last caller has it, in ms:\n");
    for ((_, name), times) in KINDS.into_iter().zip(times) {
        println!("{name:32} {}", Spread::of(times));
    }
    println!("\nFrom the shutdown of a leader to the next term, in ms: {}", Spread::of(terms));
    Ok(())
}

/// From the end of the work until the last caller has the value.
async fn last_has_it(
    processes: &[Arc<Process>],
    kind: Kind,
    round: u32,
) -> Result<Duration, Failure> {
    let (began, key) = (Instant::now(), format!("bench:{kind:?}:{round}"));
    let calls = (0..CALLERS).map(|nth| {
        let (process, key) = (Arc::clone(&processes[nth % PROCESSES]), key.clone());
        tokio::spawn(async move {
            let ended = call(&process, kind, &key, began).await?;
            Ok::<_, Failure>((ended, began.elapsed()))
        })
    });
    let calls = try_join_all(calls).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let made = calls.iter().map(|(ended, _)| *ended).max().unwrap_or_default();
    let last = calls.iter().map(|(_, got)| *got).max().unwrap_or_default();
    if calls.iter().any(|(ended, _)| *ended != made) {
        return Err(format!("{kind:?}: it was made twice").into());
    }
    Ok(last - Duration::from_micros(made))
}

/// Makes the value, which is when it was made, or gets that of another caller.
async fn call(process: &Process, kind: Kind, key: &str, began: Instant) -> Result<u64, Failure> {
    let work = async || {
        sleep(WORK).await;
        u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
    };
    let (cached, mut connection) = (format!("value:{key}"), process.connection.clone());
    let lock = Lock::new(key).ttl(TTL).wait(TTL).manager(&process.locks);
    match kind {
        Kind::Reuse => {
            let made = lock.reuse(TTL).run(async { Ok::<_, LockError>(work().await) });
            Ok(made.await?)
        }
        Kind::Waiters => {
            let guard = lock.acquire().await?;
            let value = match connection.get(&cached).await? {
                Some(value) => value,
                None => {
                    let value = work().await;
                    let () = connection.set_ex(&cached, value, 30).await?;
                    value
                }
            };
            guard.release().await?;
            Ok(value)
        }
        Kind::Poll => loop {
            if let Some(value) = connection.get(&cached).await? {
                return Ok(value);
            }
            let mut set = redis::cmd("SET");
            set.arg(key).arg("1").arg("NX").arg("PX").arg(30_000);
            if set.query_async(&mut connection).await? {
                let value = work().await;
                let () = connection.set_ex(&cached, value, 30).await?;
                let () = connection.del(key).await?;
                return Ok(value);
            }
            sleep(POLL).await;
        },
    }
}

/// From the shutdown of a leader until the next one leads.
async fn follows(server: &Server, round: u32) -> Result<Duration, Failure> {
    let (leads, mut leaders) = unbounded_channel();
    let mut replicas = Vec::new();
    for nth in 0..2 {
        let (locks, leads) = (LockManager::connect(&server.url()).await?, leads.clone());
        let lock = Lock::new(format!("bench:role:{round}")).ttl(TTL).manager(&locks);
        replicas.push((
            locks,
            tokio::spawn(async move {
                lock.lead(async |_| {
                    let _ = leads.send((nth, Instant::now()));
                    std::future::pending().await
                })
                .await
            }),
        ));
    }
    let (first, _) = leaders.recv().await.ok_or("nobody leads")?;
    // The other one waits in the queue by then.
    sleep(Duration::from_millis(50)).await;
    let start = Instant::now();
    replicas[first].0.shutdown(TTL).await?;
    let (_, next) = leaders.recv().await.ok_or("nobody follows")?;
    for (locks, lead) in replicas {
        locks.shutdown(TTL).await?;
        lead.await??;
    }
    Ok(next - start)
}
