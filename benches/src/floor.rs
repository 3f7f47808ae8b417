//! Acquiring and releasing free locks, beside the two bare commands that every lock needs, and
//! beside `rslock`.
//!
//! All kinds run on one server, in turn within every round, so that a machine that becomes slower
//! or faster does so for all of them. The ratios are made within a round. A single task changes the
//! kind every fifty pairs, so that the effect of a processor that sleeps between two commands is
//! the same for each kind. The bare commands run with the time limit that the library has by
//! default, and once without one.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::{Admin, Server};

use crate::Failure;
use crate::bare::{self, Bare};
use crate::measure::{Spread, cpu, server_cpu};

const TTL: Duration = Duration::from_secs(30);
/// Pairs of one kind in one round, in a task by itself.
const PAIRS_ALONE: usize = 1_000;
/// Pairs of one kind before the next kind's turn.
const IN_TURN: usize = 50;
/// Pairs of one kind in one round, in many tasks, where a whole round is one turn.
const PAIRS_TOGETHER: u32 = 16_384;
/// Numbers of concurrent tasks, beside one task by itself.
const TASKS: [u32; 3] = [64, 256, 1_024];
/// As long as a token of lockmacro.
const TOKEN: &str = "bare/0123456789abcdef0123456789abcdef";

/// A way to acquire and release a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bare,
    Unlimited,
    Fixed,
    Renewed,
    Background,
    Rslock,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Bare, "bare commands"),
    (Kind::Unlimited, "no time limit"),
    (Kind::Fixed, "Lock::run, ttl"),
    (Kind::Renewed, "Lock::run, renewed"),
    (Kind::Background, "Lock::run, backgr."),
    (Kind::Rslock, "rslock"),
];

#[derive(Clone)]
struct Clients {
    bare: Bare,
    unlimited: Bare,
    locks: LockManager,
    rslock: rslock::LockManager,
}

impl Clients {
    async fn connect(url: &str) -> Result<Self, Failure> {
        let (bare, unlimited) = (Bare::connect(url).await?, Bare::without_limit(url).await?);
        let locks = LockManager::builder().timeout(Duration::from_secs(20)).connect(url).await?;
        let rslock = rslock::LockManager::from_clients(vec![bare::client(url)?]);
        Ok(Self { bare, unlimited, locks, rslock })
    }

    async fn pair(&mut self, kind: Kind, key: &str) -> Result<(), Failure> {
        let lock = match kind {
            Kind::Bare | Kind::Unlimited => {
                let bare = if kind == Kind::Bare { &mut self.bare } else { &mut self.unlimited };
                let granted = bare.set(key, TOKEN, TTL).await?;
                let released = bare.release(key, TOKEN).await?;
                let done = (granted && released).then_some(());
                return done.ok_or_else(|| "the bare lock was not free".into());
            }
            Kind::Rslock => {
                let lock = self.rslock.lock(key, TTL).await?;
                self.rslock.unlock(&lock).await;
                return Ok(());
            }
            Kind::Fixed => Lock::new(key).ttl(TTL),
            Kind::Renewed => Lock::new(key),
            // A key of its own, because the next kind could find the key still held.
            Kind::Background => Lock::new(format!("{key}:b")).release_in_background(),
        };
        Ok(lock.manager(&self.locks).run(async { Ok::<_, LockError>(()) }).await?)
    }

    /// The time of a pair of each kind in a task by itself, in microseconds.
    async fn alone(mut self) -> Result<[f64; KINDS.len()], Failure> {
        let mut times: [Vec<f64>; KINDS.len()] = Default::default();
        for nth in 0..PAIRS_ALONE / IN_TURN {
            for turn in 0..KINDS.len() {
                // Each kind is the first in some of the rounds.
                let which = (turn + nth) % KINDS.len();
                for _ in 0..IN_TURN {
                    let start = Instant::now();
                    self.pair(KINDS[which].0, "bench:0").await?;
                    times[which].push(start.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
        Ok(times.map(|times| Spread::of(times).median))
    }

    /// Microseconds of a call that finds the lock held by its own process.
    async fn refused(&self, admin: &mut Admin, rounds: u32) -> Result<Spread, Failure> {
        let lock = || Lock::new("bench:held").ttl(TTL).manager(&self.locks);
        let held = lock().acquire().await?;
        admin.forget_calls();
        let mut times = Vec::new();
        for _ in 0..rounds {
            let start = Instant::now();
            for _ in 0..PAIRS_ALONE {
                if !lock().acquire().await.is_err_and(|error| error.is_busy()) {
                    return Err("a held lock was granted".into());
                }
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / PAIRS_ALONE as f64);
        }
        if admin.calls().iter().any(|(name, _)| ["set", "eval", "evalsha"].contains(&name.as_str()))
        {
            return Err("the server was asked".into());
        }
        held.release().await?;
        Ok(Spread::of(times))
    }

    /// Runs all pairs in this number of tasks, each with a key of its own.
    async fn round(&self, kind: Kind, tasks: u32, admin: &mut Admin) -> Result<Sample, Failure> {
        let pairs = PAIRS_TOGETHER;
        let (start, client, server) = (Instant::now(), cpu(), server_cpu(admin));
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
        let (pairs, elapsed, client) = (f64::from(pairs), start.elapsed(), cpu() - client);
        Ok(Sample {
            latency: Spread::of(times).median,
            per_second: pairs / elapsed.as_secs_f64(),
            client: client.as_secs_f64() * 1e6 / pairs,
            server: (server_cpu(admin) - server).as_secs_f64() * 1e6 / pairs,
        })
    }
}

/// One kind in one round.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Microseconds from the request to the end of the release, the median.
    latency: f64,
    per_second: f64,
    /// Microseconds of processor time for a pair, in this process and in the server.
    client: f64,
    server: f64,
}

pub async fn run(server: &Server, rounds: u32) -> Result<(), Failure> {
    let (clients, mut admin) = (Clients::connect(&server.url()).await?, server.admin());
    println!("Pairs of acquire and release on free keys, {rounds} rounds; medians, with quartiles");
    println!("of the ratios to the bare commands (SET NX PX and EVALSHA on one connection)\n");
    let mut alone = Vec::new();
    for round in 0..=rounds {
        let times = tokio::spawn(clients.clone().alone()).await??;
        // The first round only warms up.
        alone.extend((round > 0).then_some(times));
    }
    println!(
        "One task, the kinds in turn every {IN_TURN} pairs:\n\n{:19}{:>9}  × µs/pair",
        "", "µs/pair"
    );
    for (which, (_, name)) in KINDS.iter().enumerate() {
        let median = Spread::of(alone.iter().map(|times| times[which])).median;
        let ratio = Spread::of(alone.iter().map(|times| times[which] / times[0]));
        println!("{name:19}{median:9.1}  {ratio}");
    }
    let refused = clients.refused(&mut admin, rounds).await?;
    println!("\nA call that its own process refuses: {refused} µs, without a command");
    println!(
        "\n{:>5}  {:19}{:>9}{:>9}{:>8}{:>8}  {:21}{:21}{:21}{:21}",
        "tasks",
        "",
        "pairs/s",
        "µs/pair",
        "client",
        "server",
        "× pairs/s",
        "× µs/pair",
        "× client CPU",
        "× server CPU"
    );
    for tasks in TASKS {
        let mut samples: [Vec<Sample>; KINDS.len()] = Default::default();
        for round in 0..=rounds {
            for turn in 0..KINDS.len() {
                // Each kind is the first in some of the rounds.
                let which = (turn + round as usize) % KINDS.len();
                let sample = clients.round(KINDS[which].0, tasks, &mut admin).await?;
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
    println!(
        "{tasks:5}  {name:19}{:9.0}{:9.0}{:8.1}{:8.1}  {:21}{:21}{:21}{:21}",
        median(|s| s.per_second),
        median(|s| s.latency),
        median(|s| s.client),
        median(|s| s.server),
        ratio(|s| s.per_second),
        ratio(|s| s.latency),
        ratio(|s| s.client),
        ratio(|s| s.server),
    );
}
