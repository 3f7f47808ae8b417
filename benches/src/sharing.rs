//! Locks that several callers hold: free ones beside the two bare commands, readers that come
//! together, and many callers for a few permits. With the server on this machine, and 1 ms away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::{Admin, Server};
use tokio::sync::Barrier;

use crate::Failure;
use crate::bare::Bare;
use crate::contention::far::moved_away;
use crate::measure::{Spread, cpu, server_cpu};

const TTL: Duration = Duration::from_secs(30);
/// Pairs of one kind in one round, and before the next kind's turn.
const PAIRS: usize = 1_000;
const IN_TURN: usize = 50;
const READERS: usize = 100;
const CALLERS: usize = 1_000;
const PERMITS: u32 = 10;
const TOKEN: &str = "bare/0123456789abcdef0123456789abcdef";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Bare,
    /// The two scripts of a shared lock, without the library.
    BareScripts,
    Exclusive,
    Shared,
    Permits,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::Bare, "bare commands"),
    (Kind::BareScripts, "bare scripts"),
    (Kind::Exclusive, "exclusive"),
    (Kind::Shared, "shared"),
    (Kind::Permits, "permits"),
];

pub async fn run(rounds: u32) -> Result<(), Failure> {
    for away in [false, true] {
        let server = Server::start();
        let url = match away {
            true => format!("redis://127.0.0.1:{}", moved_away(server.port())?),
            false => server.url(),
        };
        println!("\nThe server is {}\n", if away { "1 ms away" } else { "on this machine" });
        // In a task, as in a service.
        tokio::spawn(at(url, server.admin(), rounds)).await??;
    }
    Ok(())
}

async fn at(url: String, mut admin: Admin, rounds: u32) -> Result<(), Failure> {
    let locks = LockManager::builder().timeout(TTL).connect(&url).await?;
    let mut bare = Bare::connect(&url).await?;
    free(&locks, &mut bare, rounds).await?;
    let (mut readers, mut gaps, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let (mut commands, mut processors) = (Vec::new(), Vec::new());
    // The first round only warms up.
    for round in 0..=rounds {
        let round_trip = round_trip(&mut bare).await?;
        let together = together(&locks).await?.div_duration_f64(round_trip);
        admin.forget_calls();
        let (client, server) = (cpu(), server_cpu(&mut admin));
        let times = permits(&locks).await?.map(|time| time.div_duration_f64(round_trip));
        let micros = |spent: Duration| spent.as_secs_f64() * 1e6 / CALLERS as f64;
        let spent = [micros(cpu() - client), micros(server_cpu(&mut admin) - server)];
        let calls = admin.calls().into_iter();
        let calls: u64 = calls.filter(|(name, _)| name == "evalsha").map(|(_, calls)| calls).sum();
        if round > 0 {
            readers.push(together);
            gaps.push(times[0]);
            whole.push(times[1]);
            commands.push(calls as f64 / CALLERS as f64);
            processors.push(spent);
        }
    }
    println!("\n{READERS} readers at once, all in: {} round trips", Spread::of(readers));
    let (gap, whole) = (Spread::of(gaps), Spread::of(whole));
    println!("{CALLERS} callers for {PERMITS} permits, round trips for each body of a permit:");
    println!("gap {gap}, with the arrival of all callers {whole}");
    let [client, server] = [0, 1].map(|of| Spread::of(processors.iter().map(|spent| spent[of])));
    println!("per acquisition: {} commands, µs of processor time:", Spread::of(commands));
    println!("client {client}, server {server}");
    Ok(locks.shutdown(TTL).await?)
}

async fn round_trip(bare: &mut Bare) -> Result<Duration, Failure> {
    let mut times = Vec::new();
    for _ in 0..IN_TURN {
        let start = Instant::now();
        bare.ping().await?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(Duration::from_secs_f64(Spread::of(times).median))
}

/// Free locks, the kinds in turn.
async fn free(locks: &LockManager, bare: &mut Bare, rounds: u32) -> Result<(), Failure> {
    let mut ratios: [Vec<f64>; KINDS.len()] = Default::default();
    let mut medians: [Vec<f64>; KINDS.len()] = Default::default();
    for round in 0..=rounds {
        let mut times: [Vec<f64>; KINDS.len()] = Default::default();
        for nth in 0..PAIRS / IN_TURN {
            for turn in 0..KINDS.len() {
                let which = (turn + nth) % KINDS.len();
                for _ in 0..IN_TURN {
                    let start = Instant::now();
                    pair(locks, bare, KINDS[which].0).await?;
                    times[which].push(start.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
        let times = times.map(|times| Spread::of(times).median);
        for which in 0..KINDS.len() {
            if round > 0 {
                medians[which].push(times[which]);
                ratios[which].push(times[which] / times[0]);
            }
        }
    }
    println!("{:15}{:>9}  × bare commands", "free locks", "µs/pair");
    for ((_, name), (medians, ratios)) in KINDS.iter().zip(medians.into_iter().zip(ratios)) {
        println!("{name:15}{:9.1}  {}", Spread::of(medians).median, Spread::of(ratios));
    }
    Ok(())
}

async fn pair(locks: &LockManager, bare: &mut Bare, kind: Kind) -> Result<(), Failure> {
    let lock = Lock::new("bench:0").ttl(TTL).manager(locks);
    let lock = match kind {
        Kind::Bare => {
            let granted = bare.set("bench:0", TOKEN, TTL).await?;
            let released = bare.release("bench:0", TOKEN).await?;
            let done = (granted && released).then_some(());
            return done.ok_or_else(|| "the bare lock was not free".into());
        }
        Kind::BareScripts => {
            let done = bare.share("bench:0", TOKEN, TTL).await?;
            return done.then_some(()).ok_or_else(|| "the bare lock was not free".into());
        }
        Kind::Exclusive => lock,
        Kind::Shared => lock.shared(),
        Kind::Permits => lock.permits(PERMITS),
    };
    Ok(lock.run(async { Ok::<_, LockError>(()) }).await?)
}

/// The time until all readers are in, who come at the same moment.
async fn together(locks: &LockManager) -> Result<Duration, Failure> {
    let inside = Arc::new(Barrier::new(READERS));
    let start = Instant::now();
    let readers = (0..READERS).map(|_| {
        let lock = Lock::new("bench:readers").shared().ttl(TTL).manager(locks);
        let inside = Arc::clone(&inside);
        tokio::spawn(lock.run(async move {
            inside.wait().await;
            Ok::<_, LockError>(start.elapsed())
        }))
    });
    let times: Result<Vec<_>, _> = try_join_all(readers).await?.into_iter().collect();
    Ok(times?.into_iter().min().unwrap_or_default())
}

/// Many callers come at once for few permits, with empty bodies. Returns the median time from the
/// beginning of a body to that of the next one under the same permit, and the whole time for each
/// body of a permit.
async fn permits(locks: &LockManager) -> Result<[Duration; 2], Failure> {
    let start = Instant::now();
    let callers = (0..CALLERS).map(|_| {
        let lock = Lock::new("bench:permits").permits(PERMITS).ttl(TTL).wait_forever();
        let began = async move { Ok::<_, LockError>(start.elapsed()) };
        tokio::spawn(lock.manager(locks).run(began))
    });
    let began: Result<Vec<_>, _> = try_join_all(callers).await?.into_iter().collect();
    let (mut began, whole) = (began?, start.elapsed());
    began.sort_unstable();
    let gaps =
        began.windows(PERMITS as usize + 1).map(|bodies| bodies[PERMITS as usize] - bodies[0]);
    let gap = Spread::of(gaps.map(|gap| gap.as_secs_f64())).median;
    Ok([Duration::from_secs_f64(gap), whole * PERMITS / CALLERS as u32])
}
