//! Free locks, beside the two statements that each of them needs.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::Postgres;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::{connections, in_turn, ratio, row};
use crate::Failure;
use crate::measure::Spread;

/// Numbers of concurrent tasks, and how many times as many rounds they have.
const TASKS: [(u32, u32); 3] = [(1, 6), (8, 2), (MOST, 1)];
const MOST: u32 = 32;
/// Pairs of each task in one round.
const PAIRS: u32 = 50;
const KEYS: u32 = 100_000;
const TTL: Duration = Duration::from_secs(30);
/// As many as the store has for the calls of locks.
const CONNECTIONS: usize = 4;
/// As long as a token of lockmacro.
const TOKEN: &str = "bare/0123456789abcdef0123456789abcdef";
const ASK: &str = "SELECT * FROM lm1.ask($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const RELEASE: &str = "SELECT * FROM lm1.release($1, $2, $3)";

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A task has a connection of its own.
    Apart,
    /// Tasks share connections as in the store.
    Bare,
    Ours,
}

const KINDS: [(Kind, &str); 3] = [
    (Kind::Apart, "bare statements, a connection for each task"),
    (Kind::Bare, "bare statements, four connections"),
    (Kind::Ours, "`Lock::run`, ttl"),
];

#[derive(Clone)]
struct Clients {
    bare: Arc<[Client]>,
    locks: LockManager,
}

pub async fn run(server: &Postgres, rounds: u32) -> Result<(), Failure> {
    // First, as it makes the schema.
    let locks = LockManager::builder().timeout(TTL).connect(&server.url()).await?;
    let bare = connections(server, MOST as usize).await;
    println!("{}\n", row(&bare[0], "SELECT version()").await?.get::<_, &str>(0));
    let clients = Clients { bare: bare.into(), locks };
    println!("| tasks | | ms a pair | × | pairs/s | × |\n|---:|:--|---:|---:|---:|---:|");
    for (tasks, times) in TASKS {
        let samples: [Vec<[f64; 2]>; KINDS.len()] =
            in_turn(times * rounds, async |which| clients.round(KINDS[which].0, tasks).await)
                .await?;
        let base = &samples[usize::from(tasks > 1)];
        for ((_, name), kind) in KINDS.iter().zip(&samples) {
            let [time, rate] = [0, 1].map(|of| {
                let [own, base] = [kind, base].map(|samples| samples.iter().map(move |s| s[of]));
                (Spread::of(own.clone()).median, ratio(own, base))
            });
            println!(
                "| {tasks} | {name} | {:.2} | {} | {:.0} | {} |",
                time.0, time.1, rate.0, rate.1
            );
        }
    }
    Ok(clients.locks.shutdown(TTL).await?)
}

impl Clients {
    /// The median time of a pair in milliseconds, and pairs a second.
    async fn round(&self, kind: Kind, tasks: u32) -> Result<[f64; 2], Failure> {
        let start = Instant::now();
        let tasks = (0..tasks).map(|task| {
            let clients = self.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                for _ in 0..PAIRS {
                    // No two tasks have the same key.
                    let key = format!("bench:{}", fastrand::u32(..KEYS) / MOST * MOST + task);
                    let start = Instant::now();
                    clients.pair(kind, key, task as usize).await?;
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                }
                Ok::<_, Failure>(times)
            })
        });
        let times: Result<Vec<_>, _> = try_join_all(tasks).await?.into_iter().collect();
        let times = times?.concat();
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        Ok([Spread::of(times).median, rate])
    }

    async fn pair(&self, kind: Kind, key: String, task: usize) -> Result<(), Failure> {
        let nth = match kind {
            Kind::Ours => {
                let lock = Lock::new(key).ttl(TTL).manager(&self.locks);
                return Ok(lock.run(async { Ok::<_, LockError>(()) }).await?);
            }
            Kind::Apart => task,
            // By the key, as in the store.
            Kind::Bare => {
                let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&key);
                (hash % CONNECTIONS as u64) as usize
            }
        };
        bare(&self.bare[nth], key).await
    }
}

/// The statements as the store sends them, for a caller that does not wait.
async fn bare(client: &Client, key: String) -> Result<(), Failure> {
    let (keys, holders, none) = (vec![key], vec![1_i32], None::<&str>);
    let (ttl, waits) = (TTL.as_millis() as i64, 0_i64);
    let ask: [(&(dyn ToSql + Sync), Type); 9] = [
        (&keys, Type::TEXT_ARRAY),
        (&TOKEN, Type::TEXT),
        (&ttl, Type::INT8),
        (&holders, Type::INT4_ARRAY),
        (&false, Type::BOOL),
        (&none, Type::TEXT),
        (&none, Type::TEXT),
        (&1_i32, Type::INT4),
        (&waits, Type::INT8),
    ];
    let asked = client.query_typed(ASK, &ask).await?;
    let granted = asked.first().is_some_and(|row| row.get::<_, Option<i32>>(0).is_none());
    let release: [(&(dyn ToSql + Sync), Type); 3] =
        [(&keys, Type::TEXT_ARRAY), (&TOKEN, Type::TEXT), (&0_i64, Type::INT8)];
    let released = client.query_typed(RELEASE, &release).await?;
    let released = released.first().is_some_and(|row| row.get(0));
    (granted && released).then_some(()).ok_or_else(|| "the bare lock was not free".into())
}
