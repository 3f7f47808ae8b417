//! Waiters of the manager that releases the lock: they have it without a command.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use futures::poll;
use lockmacro_runtime::{Lock, LockError, LockManager};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::queue::Queue;
use lockmacro_tests::times::SOON;
use lockmacro_tests::{Proxy, Server, eventually};
use tokio::time::timeout;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber};

use crate::{
    KEY, LONG_TTL, PUSHED, handed_off, keeps_only_fences, lock, manager, ms, served, waiting,
};

/// How many commands the server was sent.
fn commands(server: &Server) -> u64 {
    server.admin().count(&["set", "evalsha", "eval", "publish"])
}

/// A manager that may pass a lock on among its own callers for this long.
async fn with_turn(server: &Server, turn: Duration) -> LockManager {
    LockManager::builder().turn(turn).connect(&server.url()).await.expect("there")
}

/// It has the token of the first one, whom the store shows to other processes. On a clock that stands
/// still, because an offer lasts for a moment.
#[tokio::test(start_paused = true)]
async fn a_caller_that_finds_a_lock_on_offer_is_shown_who_had_it_last() {
    let manager = LockManager::builder().turn(ms(1_000)).isolated_memory();
    let named = |name| waiting(&manager, KEY).name(name).acquire();
    let first = named("first").await.expect("free");
    let (mut second, mut third) = (pin!(named("second")), pin!(named("third")));
    assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
    first.release().await.expect("still held");
    second.await.expect("passed on").release().await.expect("still held");
    match lock(&manager, KEY).acquire().await {
        Err(LockError::Busy { holder, .. }) => {
            assert!(holder.to_string().ends_with(":second"), "{holder}");
        }
        other => panic!("{other:?}"),
    }
    third.await.expect("passed on").release().await.expect("still held");
}

/// The fences of the callers of a turn come with its grant. A grant has more than one where there
/// were fences before.
#[tokio::test]
async fn a_pass_takes_no_command_with_fences_or_without() {
    for fenced in [false, true] {
        let server = Server::start();
        let manager = with_turn(&server, ms(1_000)).await;
        let caller = async |manager: &LockManager, fenced: bool| {
            let lock = waiting(manager, KEY);
            match fenced {
                true => lock.fenced().acquire().await,
                false => lock.acquire().await,
            }
        };
        // Of another process, so that the turn of ours begins when all wait.
        let theirs = self::manager(&server).await;
        let guard = caller(&theirs, fenced).await.expect("free");
        let (mut queue, mut waiters) = (Queue::at(&server, KEY), Vec::new());
        for nth in 0..6 {
            waiters.push(queue.join(caller(&manager, fenced && nth % 2 == 0)).await);
        }
        let mut fences = Vec::from_iter(guard.fence());
        guard.release().await.expect("still held");
        let mut guard = waiters.remove(0).await.expect("served");
        server.admin().forget_calls();
        for waiter in waiters {
            fences.extend(guard.fence());
            guard.release().await.expect("still held");
            guard = timeout(PUSHED, waiter).await.expect("in time").expect("served");
        }
        assert_eq!(commands(&server), 0, "fenced: {fenced}");
        assert_eq!(fences.len(), if fenced { 4 } else { 0 }, "of every other waiter");
        assert!(fences.is_sorted_by(|one, other| one < other), "{fences:?}");
        guard.release().await.expect("still held");
        // The release, which may have to bring its script.
        assert!(commands(&server) <= 2, "fenced: {fenced}");
        keeps_only_fences(&server, LONG_TTL).await;
    }
}

#[tokio::test]
async fn without_a_turn_every_release_goes_to_the_server() {
    let server = Server::start();
    let manager = with_turn(&server, Duration::ZERO).await;
    let guard = lock(&manager, KEY).acquire().await.expect("free");
    let next = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    server.admin().forget_calls();
    guard.release().await.expect("still held");
    assert!(commands(&server) >= 1, "it was released");
    served(PUSHED, next).await;
    keeps_only_fences(&server, LONG_TTL).await;
}

#[tokio::test]
async fn a_call_that_does_not_wait_is_refused_without_a_command() {
    let server = Server::start();
    let (ours, theirs) = (manager(&server).await, manager(&server).await);
    let guard = lock(&ours, KEY).name("first").acquire().await.expect("free");
    // Behind the holder, and behind a waiter of the same process.
    let waiter = Queue::at(&server, KEY).join(waiting(&theirs, KEY).acquire()).await;
    for manager in [&ours, &theirs] {
        server.admin().forget_calls();
        let refused = lock(manager, KEY).acquire().await.expect_err("it is held");
        assert_eq!(commands(&server), 0);
        assert!(matches!(refused, LockError::Busy { .. }), "{refused:?}");
        assert!(
            refused.holder().owner.as_deref().is_some_and(|owner| owner.ends_with(":first")),
            "{refused:?}"
        );
        assert!(refused.holder().free_within > Some(LONG_TTL / 2), "{refused:?}");
    }
    handed_off(guard, waiter).await;
    assert!(lock(&ours, KEY).acquire().await.is_ok(), "nobody has it any more");
}

#[tokio::test]
async fn a_fence_grows_from_one_holder_to_the_next() {
    let server = Server::start();
    let manager = manager(&server).await;
    let mut last = None;
    let mut guard = lock(&manager, KEY).acquire().await.expect("free");
    for _ in 0..3 {
        let next = Lock::new(KEY).ttl(LONG_TTL).wait_forever().manager(&manager).acquire_fenced();
        let next = Queue::at(&server, KEY).join(next).await;
        guard.release().await.expect("still held");
        let (given, fences) = timeout(PUSHED, next).await.expect("in time").expect("served");
        assert!(Some(fences[0]) > last && given.fence() == Some(fences[0]));
        (guard, last) = (given, Some(fences[0]));
    }
}

#[tokio::test]
async fn a_release_that_nobody_polls_any_more_holds_up_nobody() {
    let server = Server::start();
    // A turn of no time: the release is sent.
    let manager = with_turn(&server, Duration::ZERO).await;
    // A holder that would have waited releases by one command, which the server then knows.
    served(PUSHED, waiting(&manager, KEY).acquire()).await;
    let first = waiting(&manager, KEY).acquire().await.expect("free");
    let next = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    let mut release = pin!(first.release());
    assert!(poll!(release.as_mut()).is_pending());
    served(PUSHED, next).await;
    release.await.expect("it was held");
    keeps_only_fences(&server, LONG_TTL).await;
}

#[tokio::test]
async fn a_lock_that_was_passed_on_may_be_extended_beyond_its_ttl() {
    let server = Server::start();
    let manager = with_turn(&server, ms(1_000)).await;
    let guard = lock(&manager, KEY).acquire().await.expect("free");
    let waiter = waiting(&manager, KEY).acquire();
    let next = Queue::at(&server, KEY).join(waiter).await;
    server.admin().forget_calls();
    guard.release().await.expect("still held");
    let next = timeout(SOON, next).await.expect("in time").expect("served");
    assert_eq!(commands(&server), 0, "it was passed on");
    next.extend(4 * LONG_TTL).await.expect("still held");
    assert!(next.remaining() > 3 * LONG_TTL, "{:?}", next.remaining());
    next.release().await.expect("still held");
}

#[tokio::test]
async fn a_shorter_extend_of_a_lock_that_was_passed_on_leaves_it_its_own_ttl() {
    let server = Server::start();
    let manager = with_turn(&server, ms(1_000)).await;
    let guard = lock(&manager, KEY).ttl(ms(4_000)).acquire().await.expect("free");
    let next = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    server.admin().forget_calls();
    guard.release().await.expect("still held");
    let next = timeout(SOON, next).await.expect("in time").expect("served");
    assert_eq!(commands(&server), 0, "it was passed on");
    next.extend(ms(500)).await.expect("still held");
    let confirmed = || std::future::ready(next.remaining() > LONG_TTL / 2);
    eventually("the rest of its ttl is confirmed", ms(4_000), confirmed).await;
    next.release().await.expect("still held");
}

/// It is cleaned up for as long as the server may keep the key, and not only for its short ttl.
#[tokio::test]
async fn a_short_lock_that_was_passed_on_is_released_after_an_outage() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let builder = LockManager::builder().turn(ms(1_000));
    let manager = builder.connect(&proxy.url()).await.expect("there");
    let guard = lock(&manager, KEY).ttl(ms(4_900)).acquire().await.expect("free");
    let waiter = waiting(&manager, KEY).ttl(ms(300)).acquire();
    let next = Queue::at(&server, KEY).join(waiter).await;
    server.admin().forget_calls();
    guard.release().await.expect("still held");
    let next = timeout(SOON, next).await.expect("in time").expect("served");
    assert_eq!(commands(&server), 0, "it was passed on");
    // So that it is free by its release alone.
    server.admin().ask::<()>(&["PEXPIRE", KEY, "60000"]);
    proxy.refuse(true);
    proxy.cut();
    drop(next);
    tokio::time::sleep(ms(900)).await;
    proxy.refuse(false);
    keeps_only_fences(&server, ms(4_000)).await;
}

/// What the server has made of a renewal without an answer is not known.
#[tokio::test]
async fn a_lock_with_a_renewal_that_has_no_answer_is_not_passed_on() {
    let server = Server::start();
    let manager = with_turn(&server, ms(1_000)).await;
    let guard = lock(&manager, KEY).acquire().await.expect("free");
    let next = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    {
        let mut extending = pin!(guard.extend(LONG_TTL));
        server.admin().forget_calls();
        assert!(poll!(&mut extending).is_pending());
        let arrived = || std::future::ready(commands(&server) > 0);
        eventually("the renewal has arrived", SOON, arrived).await;
        // Dropped without the answer.
    }
    server.admin().forget_calls();
    guard.release().await.expect("still held");
    let next = timeout(SOON, next).await.expect("in time").expect("served");
    assert!(commands(&server) > 0, "it was released, and asked for again");
    next.release().await.expect("still held");
    keeps_only_fences(&server, LONG_TTL).await;
}

#[tokio::test]
async fn a_call_that_does_not_wait_has_an_error_in_an_outage() {
    let mut server = Server::start();
    let ours = LockManager::builder().timeout(ms(400)).connect(&server.url()).await.expect("there");
    let theirs = manager(&server).await;
    let _guard = lock(&theirs, KEY).acquire().await.expect("free");
    let _waiter = Queue::at(&server, KEY).join(waiting(&ours, KEY).acquire()).await;
    let refused = lock(&ours, KEY).acquire().await.expect_err("it is held");
    assert!(refused.is_busy(), "{refused:?}");
    server.kill();
    // Once the waiter has found out.
    let is_known = || async {
        let refused = timeout(SOON, lock(&ours, KEY).acquire()).await.expect("within its time");
        !refused.expect_err("nobody answers").is_busy()
    };
    eventually("nobody is known to have it", 2 * SOON, is_known).await;
}

/// A subscriber whose code fails.
struct Panics;

impl Subscriber for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        panic!("as planned");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_panic_at_a_pass_holds_up_nobody() {
    let server = Server::start();
    let manager = with_turn(&server, ms(1_000)).await;
    let guard = lock(&manager, KEY).acquire().await.expect("free");
    let mut first = pin!(waiting(&manager, KEY).acquire());
    assert!(poll!(&mut first).is_pending());
    let second = Queue::at(&server, KEY).join(waiting(&manager, KEY).acquire()).await;
    guard.release().await.expect("still held");
    let mut cx = Context::from_waker(Waker::noop());
    let poll = || with_default(Panics, || first.as_mut().poll(&mut cx).is_ready());
    catch_unwind(AssertUnwindSafe(poll)).expect_err("its subscriber fails");
    served(SOON, second).await;
    keeps_only_fences(&server, LONG_TTL).await;
}

#[tokio::test]
async fn a_release_during_a_shutdown_is_answered() {
    let server = Server::start();
    let manager = manager(&server).await;
    let guard = lock(&manager, KEY).acquire().await.expect("free");
    // Not polled any more, so it is in the queue.
    let mut waiter = pin!(waiting(&manager, KEY).acquire());
    assert!(poll!(&mut waiter).is_pending());
    let mut shutdown = pin!(manager.shutdown(SOON));
    assert!(poll!(&mut shutdown).is_pending(), "a lock is held");
    guard.release().await.expect("still held");
    assert_eq!(server.admin().get(KEY), None, "it is released when its caller has the answer");
    shutdown.await.expect("nothing is held");
    assert!(matches!(waiter.await, Err(LockError::ShutDown { held: 0 })));
}
