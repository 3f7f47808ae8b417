//! A simulation replaces clocks, random numbers and streams, for all that a manager does.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use lockmacro_runtime::defer::{DeferredFn, NewJob, Worker, argument};
use lockmacro_runtime::simulation::{Opening, Stream, Task, World, enter};
use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::Server;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, advance, sleep};

/// A date that no clock of today shows.
const DATE: Duration = Duration::from_secs(4_000_000_000);

/// A world with its own numbers, whose only way to a server is this one.
struct Replaced {
    began: Instant,
    random: Mutex<fastrand::Rng>,
    server: Option<(String, u16)>,
    opened: Mutex<BTreeSet<String>>,
}

impl Replaced {
    fn new(seed: u64, server: Option<(String, u16)>) -> Arc<Self> {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Arc::new(Self { began: Instant::now(), random, server, opened: Mutex::default() })
    }
}

impl World for Replaced {
    fn since_boot(&self) -> Duration {
        self.began.elapsed()
    }

    fn since_1970(&self) -> Duration {
        DATE + self.began.elapsed()
    }

    fn random(&self) -> u64 {
        self.random.lock().unwrap().u64(..)
    }

    fn adopt(&self, task: Task) -> Task {
        task
    }

    fn unparks_here(&self) -> Waker {
        Waker::noop().clone()
    }

    fn park(&self, longest: Duration) {
        thread::sleep(longest);
    }

    fn open(&self, address: &str) -> Opening {
        self.opened.lock().unwrap().insert(address.to_owned());
        let at = self.server.clone().expect("there is a server");
        Box::pin(async move {
            let stream: Pin<Box<dyn Stream>> = Box::pin(TcpStream::connect(at).await?);
            Ok(stream)
        })
    }
}

/// The name cannot be resolved: whatever connects by itself fails.
#[tokio::test]
async fn every_stream_is_opened_by_the_simulation() {
    let server = Server::start();
    let at = server.url().rsplit_once(':').map(|(_, port)| port.parse().unwrap()).unwrap();
    let world = Replaced::new(1, Some(("127.0.0.1".to_owned(), at)));
    let _inside = enter(world.clone());
    let locks = LockManager::connect("redis://simulated.invalid:1").await.expect("there");
    let lock = Lock::new("order:42").ttl(LONG_TTL).manager(&locks);
    // Released in the background, by its own connection.
    drop(lock.acquire().await.expect("free"));
    let waiting = lock.clone().wait(TEST_TIMEOUT).renew().acquire().await.expect("released");
    let waiter = tokio::spawn(lock.wait(TEST_TIMEOUT).acquire());
    sleep(ms(20)).await;
    waiting.release().await.expect("held");
    let next = waiter.await.expect("no panic").expect("handed off");
    next.release().await.expect("held");
    let opened: Vec<_> = world.opened.lock().unwrap().iter().cloned().collect();
    assert_eq!(opened, ["simulated.invalid:1"]);
}

/// When a deferred call that always fails is tried. The pauses between the tries are random.
async fn run(seed: u64) -> Vec<Duration> {
    let _inside = enter(Replaced::new(seed, None));
    let (locks, start) = (LockManager::isolated_memory(), Instant::now());
    let (tried, mut times) = unbounded_channel();
    let failing = DeferredFn::new("audit", (argument("id"),), move |(_,): (u64,)| {
        tried.send(start.elapsed()).expect("the test waits");
        async { Err::<(), _>("it failed") }
    });
    let failing = failing.delay(LONG_TTL).attempts(5);
    let mut call = NewJob::new("audit", "first", "[42]", "order:42");
    call.attempts = 5;
    locks.deferrer().put(call).await.expect("stored");
    let working = tokio::spawn(Worker::new(&locks).register(failing).run());
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(times.recv().await.expect("it is tried again"));
    }
    locks.shutdown(TEST_TIMEOUT).await.expect("nothing is held");
    working.await.expect("no panic").expect("it ends");
    all
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_run() {
    let first = run(7).await;
    assert_eq!(run(7).await, first);
    assert_ne!(run(8).await, first);
}

#[tokio::test(start_paused = true)]
async fn dates_are_those_of_the_simulation() {
    let _inside = enter(Replaced::new(1, None));
    let locks = LockManager::isolated_memory();
    let lock = Lock::new("order:42").manager(&locks);
    let held = lock.clone().fenced().acquire().await.expect("free");
    let fence = held.fence().expect("it is fenced");
    assert_eq!(u64::from(fence) / 1_000_000, DATE.as_secs());
    let busy = tokio::spawn(lock.acquire()).await.expect("no panic").expect_err("it is held");
    let since = busy.holder().since.expect("known").duration_since(UNIX_EPOCH).ok();
    assert_eq!(since.map(|since| since.as_secs()), Some(DATE.as_secs()));
    held.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn leases_go_by_the_clock_of_the_simulation() {
    let _inside = enter(Replaced::new(1, None));
    let locks = LockManager::isolated_memory();
    let held = Lock::new("order:42").ttl(LONG_TTL).manager(&locks).acquire().await.expect("free");
    advance(LONG_TTL).await;
    assert!(!held.is_held());
}
