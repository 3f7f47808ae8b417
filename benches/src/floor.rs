//! Taking and giving back free locks, beside the two commands that nobody can do without.
//!
//! All kinds run on one server, in turn within every round, so that a machine that becomes slower
//! or faster does so for all of them; the ratios are made within a round.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use lockmacro_runtime::{Lock, LockError, LockManager};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script};

use crate::Failure;
use crate::measure::{Spread, cpu};

const TTL: Duration = Duration::from_secs(30);
/// Pairs of one kind in one round.
const PAIRS_ALONE: u32 = 1_000;
const PAIRS_TOGETHER: u32 = 16_384;
/// How many tasks ask at once.
const TASKS: [u32; 4] = [1, 64, 256, 1_024];

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A way to lock a key, and to give it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bare,
    Fixed,
    Renewed,
}

const KINDS: [(Kind, &str); 3] = [
    (Kind::Bare, "bare commands"),
    (Kind::Fixed, "Lock::run, ttl"),
    (Kind::Renewed, "Lock::run, renewed"),
];

#[derive(Clone)]
struct Clients {
    bare: MultiplexedConnection,
    release: Script,
    locks: LockManager,
}

impl Clients {
    async fn connect(url: &str) -> Result<Self, Failure> {
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(url)?;
        let bare = client.get_multiplexed_async_connection_with_config(&patient).await?;
        let locks = LockManager::builder().timeout(Duration::from_secs(20)).connect(url).await?;
        Ok(Self { bare, release: Script::new(RELEASE), locks })
    }

    async fn pair(&mut self, kind: Kind, key: &str) -> Result<(), Failure> {
        let lock = match kind {
            Kind::Bare => return self.bare_pair(key).await,
            Kind::Fixed => Lock::new(key).ttl(TTL),
            Kind::Renewed => Lock::new(key),
        };
        Ok(lock.manager(&self.locks).run(async { Ok::<_, LockError>(()) }).await?)
    }

    async fn bare_pair(&mut self, key: &str) -> Result<(), Failure> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg("bare/0123456789abcdef0123456789abcdef").arg("NX");
        set.arg("PX").arg(TTL.as_millis().to_string());
        let granted: bool = set.query_async(&mut self.bare).await?;
        let mut release = self.release.key(key);
        release.arg("bare/0123456789abcdef0123456789abcdef");
        let released: i64 = release.invoke_async(&mut self.bare).await?;
        if granted && released == 1 { Ok(()) } else { Err("the bare lock was not free".into()) }
    }

    /// Does all pairs with as many tasks as are asked for, each with a key of its own.
    async fn round(&self, kind: Kind, tasks: u32) -> Result<Sample, Failure> {
        let pairs = if tasks == 1 { PAIRS_ALONE } else { PAIRS_TOGETHER };
        let (start, cpu_before) = (Instant::now(), cpu());
        let tasks = (0..tasks).map(|task| {
            let mut clients = self.clone();
            tokio::spawn(async move {
                let key = format!("bench:{task}");
                let mut times = Vec::new();
                for _ in 0..pairs / tasks {
                    let start = Instant::now();
                    clients.pair(kind, &key).await?;
                    times.push(start.elapsed().as_secs_f64() * 1e6);
                }
                Ok::<_, Failure>(times)
            })
        });
        let mut times = Vec::new();
        for task in try_join_all(tasks).await? {
            times.extend(task?);
        }
        let pairs = f64::from(pairs);
        Ok(Sample {
            latency: Spread::of(times).median,
            per_second: pairs / start.elapsed().as_secs_f64(),
            cpu: (cpu() - cpu_before).as_secs_f64() * 1e6 / pairs,
        })
    }
}

/// One kind in one round.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Microseconds from asking to being given back, the median.
    latency: f64,
    per_second: f64,
    /// Microseconds of this process for a pair.
    cpu: f64,
}

pub async fn run(url: &str, rounds: u32) -> Result<(), Failure> {
    let clients = Clients::connect(url).await?;
    println!("Pairs of acquire and release on free keys, {rounds} rounds; medians, with quartiles");
    println!("of the ratios to the bare commands (SET NX PX and EVALSHA on one connection)\n");
    println!(
        "{:>5}  {:19}{:>9}{:>9}{:>8}  {:21}{:21}{:21}",
        "tasks", "", "pairs/s", "µs/pair", "CPU µs", "× pairs/s", "× µs/pair", "× CPU"
    );
    for tasks in TASKS {
        let mut samples: [Vec<Sample>; KINDS.len()] = Default::default();
        for round in 0..=rounds {
            for turn in 0..KINDS.len() {
                // Everybody is first once in a while.
                let which = (turn + round as usize) % KINDS.len();
                let sample = clients.round(KINDS[which].0, tasks).await?;
                // The first round only warms up.
                if round > 0 {
                    samples[which].push(sample);
                }
            }
        }
        for ((_, name), kind) in KINDS.iter().zip(&samples) {
            print_row(tasks, name, kind, &samples[0]);
        }
    }
    Ok(clients.locks.shutdown(TTL).await?)
}

fn print_row(tasks: u32, name: &str, samples: &[Sample], bare: &[Sample]) {
    let median = |of: fn(&Sample) -> f64| Spread::of(samples.iter().map(of)).median;
    let ratio = |of: fn(&Sample) -> f64| {
        Spread::of(samples.iter().zip(bare).map(|(sample, bare)| of(sample) / of(bare))).to_string()
    };
    let (rate, latency, cpu) =
        (|s: &Sample| s.per_second, |s: &Sample| s.latency, |s: &Sample| s.cpu);
    println!(
        "{tasks:5}  {name:19}{:9.0}{:9.0}{:8.1}  {:21}{:21}{:21}",
        median(rate),
        median(latency),
        median(cpu),
        ratio(rate),
        ratio(latency),
        ratio(cpu)
    );
}
