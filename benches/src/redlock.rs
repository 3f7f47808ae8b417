//! The time to acquire a free lock on five nodes, by lockmacro and by `rslock`, beside a single
//! round trip to all five in parallel. It is measured with all nodes running and with one of them
//! stopped.

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::Server;

use crate::Failure;
use crate::bare::{self, Bare};
use crate::measure::Spread;

const NODES: usize = 5;
const TTL: Duration = Duration::from_secs(30);
/// Acquisitions of one kind in one round.
const TURNS: u32 = 40;
const TURNS_STOPPED: u32 = 4;
/// Callers of one key in one process.
const CALLERS: usize = 100;
/// Acquisitions of each of them in one round.
const EACH: u32 = 5;
const TOKEN: &str = "bare/0123456789abcdef0123456789abcdef";

struct Clients {
    bare: Vec<Bare>,
    locks: LockManager,
    rslock: rslock::LockManager,
}

impl Clients {
    async fn connect(servers: &[Server]) -> Result<Self, Failure> {
        let urls: Vec<_> = servers.iter().map(Server::url).collect();
        let bare = try_join_all(urls.iter().map(|url| Bare::connect(url))).await?;
        let clients = urls.iter().map(|url| bare::client(url)).collect::<Result<_, _>>()?;
        let locks = LockManager::builder().durable().redlock(urls).await?;
        Ok(Self { bare, locks, rslock: rslock::LockManager::from_clients(clients) })
    }

    /// Microseconds of one acquisition, without the release.
    async fn ours(&self) -> Result<f64, Failure> {
        let lock = Lock::new("bench").ttl(TTL).manager(&self.locks);
        let start = Instant::now();
        let guard = lock.acquire().await?;
        let time = micros(start);
        guard.release().await?;
        Ok(time)
    }

    /// Acquisitions a second by many callers of one key.
    async fn hot(&self) -> Result<f64, Failure> {
        let start = Instant::now();
        let callers = (0..CALLERS).map(|_| {
            let locks = self.locks.clone();
            tokio::spawn(async move {
                for _ in 0..EACH {
                    let lock = Lock::new("bench:hot").ttl(TTL).wait_forever().manager(&locks);
                    lock.run(async { Ok::<_, LockError>(()) }).await?;
                }
                Ok::<_, LockError>(())
            })
        });
        try_join_all(callers).await?.into_iter().collect::<Result<(), _>>()?;
        Ok(f64::from(EACH) * CALLERS as f64 / start.elapsed().as_secs_f64())
    }

    async fn rslock(&self) -> Result<f64, Failure> {
        let start = Instant::now();
        let lock = self.rslock.lock("bench", TTL).await?;
        let time = micros(start);
        self.rslock.unlock(&lock).await;
        Ok(time)
    }

    async fn bare(&mut self) -> Result<f64, Failure> {
        let start = Instant::now();
        try_join_all(self.bare.iter_mut().map(|bare| bare.set("bench", TOKEN, TTL))).await?;
        let time = micros(start);
        try_join_all(self.bare.iter_mut().map(|bare| bare.release("bench", TOKEN))).await?;
        Ok(time)
    }
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

/// The medians of the rounds, in microseconds.
#[derive(Default)]
struct Rounds {
    ours: Vec<f64>,
    rslock: Vec<f64>,
    bare: Vec<f64>,
    ours_stopped: Vec<f64>,
    rslock_stopped: Vec<f64>,
    /// Acquisitions a second by many callers of one key.
    hot: Vec<f64>,
}

pub async fn run(rounds: u32) -> Result<(), Failure> {
    let servers: Vec<_> = (0..NODES).map(|_| Server::start()).collect();
    let mut clients = Clients::connect(&servers).await?;
    let mut all = Rounds::default();
    for round in 0..=rounds {
        let (mut ours, mut rslock, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TURNS {
            ours.push(clients.ours().await?);
            bare.push(clients.bare().await?);
            rslock.push(clients.rslock().await?);
        }
        let hot = clients.hot().await?;
        let stopped = &servers[round as usize % NODES];
        stopped.pause();
        let (mut ours_stopped, mut rslock_stopped) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            ours_stopped.push(clients.ours().await?);
        }
        for _ in 0..TURNS_STOPPED {
            rslock_stopped.push(clients.rslock().await?);
        }
        stopped.resume();
        // Waits until the node has answered the commands that were sent to it meanwhile.
        tokio::time::sleep(Duration::from_millis(100)).await;
        // The first round only warms up.
        if round > 0 {
            let median = |times: Vec<f64>| Spread::of(times).median;
            all.ours.push(median(ours));
            all.rslock.push(median(rslock));
            all.bare.push(median(bare));
            all.ours_stopped.push(median(ours_stopped));
            all.rslock_stopped.push(median(rslock_stopped));
            all.hot.push(hot);
        }
    }
    println!(
        "Acquiring a free lock on {NODES} nodes, {rounds} rounds: µs, the medians of the rounds and"
    );
    println!("their quartiles; the ratios are made within a round\n");
    let row =
        |name: &str, times: &[f64]| println!("{name:44}{}", Spread::of(times.iter().copied()));
    row("a SET to each in parallel, joined", &all.bare);
    row("lockmacro", &all.ours);
    row("lockmacro, one node stopped", &all.ours_stopped);
    row("rslock", &all.rslock);
    row("rslock, one node stopped", &all.rslock_stopped);
    row("lockmacro, 100 callers of a key, a second", &all.hot);
    let ratio = |name: &str, of: &[f64], to: &[f64]| {
        row(name, &of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>());
    };
    ratio("lockmacro / parallel SET", &all.ours, &all.bare);
    ratio("lockmacro, one stopped / all well", &all.ours_stopped, &all.ours);
    ratio("rslock, one stopped / all well", &all.rslock_stopped, &all.rslock);
    Ok(clients.locks.shutdown(TTL).await?)
}
