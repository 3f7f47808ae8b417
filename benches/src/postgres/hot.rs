//! One hot key, which all tasks of a process request again as soon as they have released it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::{Postgres, Server};
use tokio_postgres::{Client, Statement};

use super::{connections, in_turn, ratio};
use crate::Failure;
use crate::measure::Spread;

const TASKS: [usize; 2] = [8, 32];
const LASTS: Duration = Duration::from_millis(700);
const TTL: Duration = Duration::from_secs(5);
const KEY: &str = "bench:hot";
/// Milliseconds between two tries of a client that polls, with jitter.
const POLL: std::ops::RangeInclusive<u64> = 10..=50;
const TABLE: &str = "CREATE TABLE bench_row (name text PRIMARY KEY, ends timestamptz NOT NULL, holder int NOT NULL)";
const TAKE: &str = "INSERT INTO bench_row VALUES ('hot', clock_timestamp() + interval '5 s', $1)
    ON CONFLICT (name) DO UPDATE SET ends = excluded.ends, holder = excluded.holder
    WHERE bench_row.ends < clock_timestamp()";
const GIVE: &str =
    "UPDATE bench_row SET ends = clock_timestamp() WHERE name = 'hot' AND holder = $1";

#[derive(Debug, Clone, Copy)]
enum Kind {
    Ours,
    Session,
    Transaction,
    Row,
    Redis,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Ours, "lockmacro"),
    (Kind::Session, "`pg_advisory_lock`, a connection each"),
    (Kind::Transaction, "`pg_advisory_xact_lock`, a connection each"),
    (Kind::Row, "lease row, polled every 10 to 50 ms"),
    (Kind::Redis, "lockmacro on Redis"),
];

/// One task, with a connection of its own and its prepared statements.
#[derive(Clone)]
struct Task {
    number: i32,
    ours: LockManager,
    redis: LockManager,
    client: Arc<Client>,
    session: [Statement; 2],
    transaction: Statement,
    row: [Statement; 2],
    is_held: Arc<AtomicBool>,
}

pub async fn run(server: &Postgres, redis: &Server, rounds: u32) -> Result<(), Failure> {
    let tasks = tasks(server, redis).await?;
    println!("\n| tasks | | bodies/s | × the best other in PostgreSQL | × Redis |");
    println!("|---:|:--|---:|---:|---:|");
    for number in TASKS {
        let rates: [Vec<f64>; KINDS.len()] =
            in_turn(rounds, async |which| rate(&tasks[..number], KINDS[which].0).await).await?;
        let [_, others @ .., redis] = &rates;
        let best = |round: usize| others.iter().map(|kind| kind[round]).fold(0.0, f64::max);
        for ((_, name), kind) in KINDS.iter().zip(&rates) {
            let own = || kind.iter().copied();
            let best = ratio(own(), (0..own().len()).map(best));
            let redis = ratio(own(), redis.iter().copied());
            println!("| {number} | {name} | {:.0} | {best} | {redis} |", Spread::of(own()).median);
        }
    }
    for manager in [&tasks[0].ours, &tasks[0].redis] {
        manager.shutdown(TTL).await?;
    }
    Ok(())
}

async fn tasks(server: &Postgres, redis: &Server) -> Result<Vec<Task>, Failure> {
    server.execute(TABLE).await;
    let ours = LockManager::connect(&server.url()).await?;
    let redis = LockManager::connect(&redis.url()).await?;
    let is_held = Arc::<AtomicBool>::default();
    let mut tasks = Vec::new();
    for (client, number) in connections(server, TASKS[1]).await.into_iter().zip(0..) {
        let prepare = |statement: &'static str| client.prepare(statement);
        tasks.push(Task {
            number,
            ours: ours.clone(),
            redis: redis.clone(),
            session: [
                prepare("SELECT pg_advisory_lock(1)").await?,
                prepare("SELECT pg_advisory_unlock(1)").await?,
            ],
            transaction: prepare("SELECT pg_advisory_xact_lock(1)").await?,
            row: [prepare(TAKE).await?, prepare(GIVE).await?],
            client: Arc::new(client),
            is_held: Arc::clone(&is_held),
        });
    }
    Ok(tasks)
}

/// Bodies a second, in all tasks.
async fn rate(tasks: &[Task], kind: Kind) -> Result<f64, Failure> {
    let until = Instant::now() + LASTS;
    let tasks = tasks.iter().cloned().map(|task| {
        tokio::spawn(async move {
            let mut bodies = 0_u32;
            while Instant::now() < until {
                bodies += u32::from(task.turn(kind).await? < until);
            }
            Ok::<_, Failure>(bodies)
        })
    });
    let bodies: Result<Vec<_>, _> = try_join_all(tasks).await?.into_iter().collect();
    Ok(f64::from(bodies?.into_iter().sum::<u32>()) / LASTS.as_secs_f64())
}

impl Task {
    /// Waits for the lock, and releases it after an empty body. Returns when that was.
    async fn turn(&self, kind: Kind) -> Result<Instant, Failure> {
        let client = &self.client;
        match kind {
            Kind::Ours => self.locked(&self.ours).await,
            Kind::Redis => self.locked(&self.redis).await,
            Kind::Session => {
                client.execute(&self.session[0], &[]).await?;
                let at = self.body()?;
                client.execute(&self.session[1], &[]).await?;
                Ok(at)
            }
            Kind::Transaction => {
                client.batch_execute("BEGIN").await?;
                client.execute(&self.transaction, &[]).await?;
                let at = self.body()?;
                client.batch_execute("COMMIT").await?;
                Ok(at)
            }
            Kind::Row => {
                while client.execute(&self.row[0], &[&self.number]).await? == 0 {
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(POLL))).await;
                }
                let at = self.body()?;
                client.execute(&self.row[1], &[&self.number]).await?;
                Ok(at)
            }
        }
    }

    async fn locked(&self, manager: &LockManager) -> Result<Instant, Failure> {
        let lock = Lock::new(KEY).ttl(TTL).wait_forever().manager(manager);
        let body = async { Ok::<_, LockError>(self.body()) };
        lock.run(body).await?
    }

    /// Fails when two bodies overlap.
    fn body(&self) -> Result<Instant, Failure> {
        if self.is_held.swap(true, Ordering::SeqCst) {
            return Err("two bodies overlap".into());
        }
        let at = Instant::now();
        self.is_held.store(false, Ordering::SeqCst);
        Ok(at)
    }
}
