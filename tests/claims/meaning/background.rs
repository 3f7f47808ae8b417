//! A release that nobody waits for: the value comes first, and the next caller of the process does
//! not notice.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::future::try_join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt, poll};
use lockmacro_runtime::{Fence, Lock, LockError, LockManager, distributed_lock};
use lockmacro_tests::{
    Backend, Fault, Proxy, Server, drop_after_polls, eventually, on, on_a_plain_thread,
};
use tokio::sync::Barrier;
use tokio::time::timeout;

use crate::{LONG_TTL, Locked, TEST_TIMEOUT, lock, ms};

/// For how long the network holds a release: far longer than a loaded machine takes from the end of
/// a body to a look at the key.
const HELD: Duration = Duration::from_secs(1);

fn behind(manager: &LockManager, key: &str) -> Lock {
    lock(manager, key).release_in_background()
}

/// A store behind a network that holds releases.
struct Network {
    proxies: Vec<Proxy>,
    manager: LockManager,
}

impl Network {
    async fn of(backend: &Backend) -> Self {
        let (proxies, url) = backend.proxies();
        let mut builder = LockManager::builder().timeout(LONG_TTL);
        if proxies.len() > 1 {
            // A node of a Redlock that is slow is asked all the same.
            builder = builder.node_timeout(TEST_TIMEOUT);
        }
        let manager = builder.connect(&url).await.expect("there");
        // So that every node gets the requests that are held, also those of blocked threads, which
        // have connections of their own.
        let known = backend.key("known");
        for blocks in [false, true] {
            let lock = lock(&manager, &known);
            let guard = match blocks {
                true => on_a_plain_thread(move || lock.acquire_blocking()).await,
                false => lock.acquire().await,
            };
            let is_at_all = async || holders(backend, &known) == proxies.len();
            eventually("every node has it", TEST_TIMEOUT, is_at_all).await;
            guard.expect("free").release().await.expect("released");
            let is_at_none = async || holders(backend, &known) == 0;
            eventually("no node has it", TEST_TIMEOUT, is_at_none).await;
        }
        Self { proxies, manager }
    }

    /// A body whose release is held on its way. A script is the release: a lock is asked for by a
    /// plain command here.
    async fn body(&self, key: &str) -> Locked<u32> {
        self.hold(key);
        Ok(7)
    }

    fn hold(&self, key: &str) {
        for proxy in &self.proxies {
            let key = key.to_owned();
            let is_release = move |call: &lockmacro_tests::Call<'_>| {
                call.names(&key) && (call.names("EVALSHA") || call.names("EVAL"))
            };
            proxy.on_next_call(is_release, Fault::HoldCommand(HELD));
        }
    }

    /// Whether a majority of the servers holds a key. The last one may be late.
    fn is_held(&self, backend: &Backend, key: &str) -> bool {
        holders(backend, key) > self.proxies.len() / 2
    }

    /// Checks that a body has returned before its release, and waits for that.
    async fn is_released_later(&self, backend: &Backend, key: &str) {
        assert!(self.is_held(backend, key), "it was released before");
        self.arrives().await;
        backend.becomes_free(key, TEST_TIMEOUT).await;
    }

    async fn arrives(&self) {
        for proxy in &self.proxies {
            proxy.held_commands_arrive().await;
        }
    }

    /// Lets the manager release what is left, also at the slower nodes of a Redlock, while there is
    /// a network.
    async fn ends(self) {
        self.arrives().await;
        self.manager.shutdown(TEST_TIMEOUT).await.expect("released in time");
    }
}

/// On how many of its servers a key is held.
fn holders(backend: &Backend, key: &str) -> usize {
    backend.admins().iter_mut().filter_map(|admin| admin.get(key)).count()
}

#[on(redis, slots, redlock, both_runtimes)]
async fn the_value_comes_before_the_release_is_answered(backend: &Backend) {
    let (network, key) = (Network::of(backend).await, backend.key("order:42"));
    let value = behind(&network.manager, &key).run(network.body(&key)).await;
    assert_eq!(value, Ok(7));
    assert!(network.is_held(backend, &key), "it was released before");
    assert!(!backend.is_free(&key).await, "another process finds it held");
    network.arrives().await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
    network.ends().await;
}

#[on(redis, redlock)]
async fn a_body_under_a_guard_and_one_that_is_not_async_have_their_value_first(backend: &Backend) {
    let (network, key) = (Network::of(backend).await, backend.key("order:42"));
    let guard = behind(&network.manager, &key).acquire().await.expect("free");
    assert_eq!(guard.run(network.body(&key)).await, Ok(7));
    network.is_released_later(backend, &key).await;
    let (value, network) = on_a_plain_thread({
        let key = key.clone();
        move || {
            let value = behind(&network.manager, &key).run_blocking(|| {
                network.hold(&key);
                Locked::Ok(7)
            });
            (value, network)
        }
    })
    .await;
    assert_eq!(value, Ok(7));
    assert!(network.is_held(backend, &key), "it was released before");
    assert_eq!(behind(&network.manager, &key).run(async { Locked::Ok(8) }).await, Ok(8));
    network.arrives().await;
    backend.becomes_free(&key, TEST_TIMEOUT).await;
    network.ends().await;
}

#[on(redis, slots, redlock, both_runtimes)]
async fn the_next_caller_of_the_process_gets_no_busy_error(backend: &Backend) {
    let (network, key) = (Network::of(backend).await, backend.key("order:42"));
    behind(&network.manager, &key).run(network.body(&key)).await.expect("free");
    let mut was_held = 0;
    let next: Locked<u32> = lock(&network.manager, &key)
        .wait(Duration::ZERO)
        .run(async {
            was_held = holders(backend, &key);
            Ok(8)
        })
        .await;
    assert_eq!(next, Ok(8));
    assert!(was_held > 0, "the next caller has the lock itself");
    // One that waits.
    behind(&network.manager, &key).run(network.body(&key)).await.expect("free");
    let next = lock(&network.manager, &key).wait(TEST_TIMEOUT).run(async { Locked::Ok(9) }).await;
    assert_eq!(next, Ok(9));
    // One that is not async.
    behind(&network.manager, &key).run(network.body(&key)).await.expect("free");
    let next = lock(&network.manager, &key);
    let next = on_a_plain_thread(move || next.run_blocking(|| Locked::Ok(10))).await;
    assert_eq!(next, Ok(10));
    network.ends().await;
}

#[on(redis, redlock)]
async fn the_next_caller_for_one_of_several_keys_gets_no_busy_error(backend: &Backend) {
    let network = Network::of(backend).await;
    let keys = [backend.key("a"), backend.key("b")];
    let both = || Lock::many(keys.clone()).ttl(LONG_TTL).manager(&network.manager);
    // A release whose script the server does not know is sent again, after the next request.
    both().run(async { Locked::Ok(()) }).await.expect("free");
    both().release_in_background().run(network.body(&keys[1])).await.expect("free");
    assert_eq!(lock(&network.manager, &keys[1]).run(async { Locked::Ok(8) }).await, Ok(8));
    network.arrives().await;
    behind(&network.manager, &keys[1]).run(network.body(&keys[1])).await.expect("free");
    assert_eq!(both().run(async { Locked::Ok(9) }).await, Ok(9));
    network.ends().await;
}

#[on(redis, slots, redlock)]
async fn a_lock_that_another_process_holds_is_busy_all_the_same(backend: &Backend) {
    let (network, key) = (Network::of(backend).await, backend.key("order:42"));
    behind(&network.manager, &key).run(network.body(&key)).await.expect("free");
    let rival = backend.manager().await;
    let waits = tokio::spawn(lock(&rival, &key).wait(TEST_TIMEOUT).acquire());
    network.arrives().await;
    let guard = waits.await.expect("no panic").expect("released in time");
    let next = lock(&network.manager, &key).run(async { Locked::Ok(()) }).await;
    assert!(next.is_err_and(|error| error.is_busy()));
    guard.release().await.expect("held");
    network.ends().await;
}

#[on(redis, slots, redlock, both_runtimes)]
async fn a_shutdown_waits_for_the_release(backend: &Backend) {
    let (network, key) = (Network::of(backend).await, backend.key("order:42"));
    behind(&network.manager, &key).run(network.body(&key)).await.expect("free");
    network.manager.shutdown(TEST_TIMEOUT).await.expect("released in time");
    assert!(!network.is_held(backend, &key), "it was not released");
    // A majority has released it. The others are waited for while they have a network.
    let none = async || holders(backend, &key) == 0;
    eventually("the slowest node has released it", TEST_TIMEOUT, none).await;
}

#[on(redis, redlock)]
async fn a_guard_that_is_released_by_hand_waits_for_the_answer(backend: &Backend) {
    let (network, key) = (Network::of(backend).await, backend.key("order:42"));
    let guard = behind(&network.manager, &key).acquire().await.expect("free");
    network.hold(&key);
    guard.release().await.expect("held");
    assert!(!network.is_held(backend, &key), "it was not released");
    network.ends().await;
}

#[on(memory, redis, slots, cluster, redlock, postgres, both_runtimes)]
async fn one_call_after_another_never_gets_a_busy_error(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let keys = [key.clone(), backend.key("order:43")];
    // A release whose script the server does not know is sent again, after the next request.
    let both = || Lock::many(keys.clone()).ttl(LONG_TTL).manager(&manager);
    both().run(async { Locked::Ok(()) }).await.expect("free");
    for nth in 0..60 {
        let done = match nth % 3 {
            0 => behind(&manager, &key).run(async { Locked::Ok(nth) }).await,
            1 => {
                let lock = behind(&manager, &key);
                on_a_plain_thread(move || lock.run_blocking(|| Locked::Ok(nth))).await
            }
            _ => both().release_in_background().run(async { Locked::Ok(nth) }).await,
        };
        assert_eq!(done, Ok(nth));
    }
    manager.shutdown(TEST_TIMEOUT).await.expect("released");
    assert!(backend.is_free(&key).await);
}

#[on(memory, redis, cluster, redlock, postgres)]
async fn an_annotated_function_may_release_in_the_background(backend: &Backend) {
    #[distributed_lock(key = key, ttl = "60s", release = background, manager = locks)]
    async fn double(key: &str, number: u32, locks: &LockManager) -> Locked<u32> {
        Ok(2 * number)
    }
    #[distributed_lock(key = key, release = background, fence = fence, manager = locks)]
    async fn fenced(key: &str, locks: &LockManager) -> Locked<Fence> {
        Ok(fence)
    }
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let mut last = None;
    for number in 0..10 {
        assert_eq!(double(&key, number, &manager).await, Ok(2 * number));
        let fence = fenced(&key, &manager).await.expect("not busy");
        assert!(last < Some(fence), "{last:?} and {fence:?}");
        last = Some(fence);
    }
    manager.shutdown(TEST_TIMEOUT).await.expect("released");
    backend.forget_fences();
}

#[on(redis, redlock)]
async fn an_annotated_function_returns_before_its_release(backend: &Backend) {
    #[distributed_lock(key = key, ttl = "60s", release = background, manager = network.manager)]
    async fn order(key: &str, network: &Network) -> Locked<u32> {
        network.body(key).await
    }
    #[distributed_lock(key = key, ttl = "60s", release = background, manager = network.manager)]
    fn order_sync(key: &str, network: &Network) -> Locked<u32> {
        network.hold(key);
        Ok(7)
    }
    let (network, key) = (Network::of(backend).await, backend.key("order:42"));
    assert_eq!(order(&key, &network).await, Ok(7));
    network.is_released_later(backend, &key).await;
    let called = key.clone();
    let called = on_a_plain_thread(move || (order_sync(&called, &network), network));
    let (value, network) = called.await;
    assert_eq!(value, Ok(7));
    network.is_released_later(backend, &key).await;
    network.ends().await;
}

#[on(redis, slots, both_runtimes)]
async fn one_release_is_sent_for_a_lock(backend: &Backend) {
    const CALLS: u64 = 5;
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    // From here on the servers know the script.
    lock(&manager, &key).run(async { Locked::Ok(()) }).await.expect("free");
    backend.becomes_free(&key, TEST_TIMEOUT).await;
    backend.admins().iter_mut().for_each(|admin| admin.forget_calls());
    for _ in 0..CALLS {
        behind(&manager, &key).run(async { Locked::Ok(()) }).await.expect("not busy");
    }
    manager.shutdown(TEST_TIMEOUT).await.expect("released");
    for mut admin in backend.admins() {
        let (sent, calls) = (admin.count(&["eval", "evalsha"]), admin.calls());
        assert!((1..=CALLS).contains(&sent), "{calls:?}");
        // The release is sent first, so that the next caller need not ask twice.
        assert!(calls.contains(&("set".to_owned(), CALLS)), "{calls:?}");
    }
}

/// Their commands are sent in batches, in which a request comes after the release before it. With
/// five callers, some commands are sent alone in between.
#[on(redis, both_runtimes)]
async fn many_callers_need_not_ask_twice_either(backend: &Backend) {
    let manager = backend.manager().await;
    let known = backend.key("known");
    lock(&manager, &known).run(async { Locked::Ok(()) }).await.expect("free");
    for (callers, calls) in [(200, 10), (5, 2_000)] {
        backend.admins().iter_mut().for_each(|admin| admin.forget_calls());
        let tasks = (0..callers).map(|nth| {
            let (manager, key) = (manager.clone(), backend.key(&nth.to_string()));
            tokio::spawn(async move {
                for _ in 0..calls {
                    behind(&manager, &key).run(async { Locked::Ok(()) }).await.expect("not busy");
                }
            })
        });
        try_join_all(tasks.collect::<Vec<_>>()).await.expect("no panic");
        let asked: u64 = backend.admins().iter_mut().map(|admin| admin.count(&["set"])).sum();
        assert_eq!(asked, callers * calls);
    }
    manager.shutdown(TEST_TIMEOUT).await.expect("released");
}

#[on(memory, redis, cluster, redlock, postgres)]
async fn a_body_that_panics_or_is_dropped_frees_the_lock(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    let body = behind(&manager, &key).run(async {
        if !key.is_empty() {
            panic!("as planned");
        }
        Locked::Ok(())
    });
    AssertUnwindSafe(body).catch_unwind().await.expect_err("the panic reaches the caller");
    backend.becomes_free(&key, TEST_TIMEOUT).await;
    let mut polls = 0;
    while polls < 20 {
        let body = behind(&manager, &key).wait(TEST_TIMEOUT).run(async {
            tokio::task::yield_now().await;
            Locked::Ok(())
        });
        drop_after_polls(body, polls).await;
        polls += 1;
    }
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

#[on(memory, redis, cluster, redlock, postgres)]
async fn the_key_stays_for_its_shortest_hold(backend: &Backend) {
    let (manager, key) = (backend.manager().await, backend.key("order:42"));
    // Longer than a loaded machine takes for two requests.
    let held = behind(&manager, &key).min_hold(ms(1_500));
    held.run(async { Locked::Ok(()) }).await.expect("free");
    let next: Result<_, LockError> = lock(&manager, &key).run(async { Ok(()) }).await;
    assert!(next.is_err_and(|error| error.is_busy()), "the hold is not over");
    backend.becomes_free(&key, TEST_TIMEOUT).await;
}

/// So many callers are no faster with two commands in flight each.
#[tokio::test]
async fn while_sixty_four_releases_have_no_answer_a_further_caller_waits_for_its_own() {
    let server = Server::start();
    let manager = LockManager::builder().timeout(LONG_TTL).connect(&server.url()).await;
    let manager = manager.expect("the server is there");
    let (begun, may_end) = (Barrier::new(66), Barrier::new(66));
    let mut bodies: FuturesUnordered<_> = (0..65)
        .map(|nth| {
            behind(&manager, &format!("order:{nth}")).run(async {
                begun.wait().await;
                may_end.wait().await;
                Locked::Ok(())
            })
        })
        .collect();
    let stop = async {
        begun.wait().await;
        server.pause();
        may_end.wait().await;
    };
    let all_but_one = async {
        for _ in 0..64 {
            bodies.next().await.expect("65 of them").expect("it has ended");
        }
    };
    timeout(TEST_TIMEOUT, futures::future::join(stop, all_but_one)).await.expect("in time");
    assert!(poll!(bodies.next()).is_pending(), "it waits for its release");
    server.resume();
    let last = timeout(TEST_TIMEOUT, bodies.next()).await.expect("in time");
    last.expect("65 of them").expect("it has ended");
}
