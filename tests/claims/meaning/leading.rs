//! One process leads, and another one follows it.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

use lockmacro_runtime::{Fence, Lock, LockError, LockManager};
use lockmacro_tests::{Backend, eventually, on};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::{LONG_TTL, TEST_TIMEOUT, lock, ms};

/// The terms of several processes: by whom, and with which fence.
struct Terms {
    begins: UnboundedSender<(usize, Fence)>,
    began: UnboundedReceiver<(usize, Fence)>,
    leaders: Arc<AtomicUsize>,
}

/// Counts a leader while it leads.
struct Leads(Arc<AtomicUsize>);

impl Leads {
    fn alone(leaders: &Arc<AtomicUsize>) -> Self {
        assert_eq!(leaders.fetch_add(1, SeqCst), 0, "two lead");
        Self(Arc::clone(leaders))
    }
}

impl Drop for Leads {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Terms {
    fn new() -> Self {
        let (begins, began) = unbounded_channel();
        Self { begins, began, leaders: Arc::default() }
    }

    /// A process that leads until its term is ended for it, or returns at once.
    fn campaign(&self, by: usize, lock: Lock, stays: bool) -> JoinHandle<Result<(), LockError>> {
        let (begins, leaders) = (self.begins.clone(), Arc::clone(&self.leaders));
        tokio::spawn(async move {
            lock.lead(async |term| {
                let _leads = Leads::alone(&leaders);
                begins.send((by, term.fence().expect("it has one"))).expect("the test goes on");
                if stays {
                    pending().await
                }
                tokio::task::yield_now().await;
            })
            .await
        })
    }

    async fn next(&mut self) -> (usize, Fence) {
        timeout(TEST_TIMEOUT, self.began.recv()).await.expect("in time").expect("one leads")
    }
}

async fn ends(campaign: JoinHandle<Result<(), LockError>>) -> Result<(), LockError> {
    timeout(TEST_TIMEOUT, campaign).await.expect("in time").expect("no panic")
}

async fn processes(backend: &Backend) -> [LockManager; 3] {
    [backend.manager().await, backend.manager().await, backend.manager().await]
}

/// As in a deployment that replaces the replicas one after the other.
#[on(memory, redis, redlock, postgres, both_runtimes)]
async fn a_leader_that_is_shut_down_is_followed_by_the_next_one(backend: &Backend) {
    let (key, mut terms) = (backend.key("role"), Terms::new());
    let mut campaigns = Vec::new();
    for manager in processes(backend).await {
        let campaign = terms.campaign(campaigns.len(), lock(&manager, &key), true);
        campaigns.push(Some((manager, campaign)));
    }
    let mut last = None;
    for _ in 0..3 {
        let (by, fence) = terms.next().await;
        assert!(last.replace(fence) < Some(fence), "the fence is larger each time");
        let (manager, campaign) = campaigns[by].take().expect("it was not shut down yet");
        manager.shutdown(TEST_TIMEOUT).await.expect("its body is dropped");
        assert_eq!(ends(campaign).await, Ok(()));
    }
    assert!(backend.is_free(&key).await);
    backend.forget_fences();
}

// A Redlock has no queue.
#[on(memory, redis, postgres)]
async fn a_leader_that_returns_lets_the_others_lead_first(backend: &Backend) {
    let (key, mut terms) = (backend.key("role"), Terms::new());
    let managers = processes(backend).await;
    let guard = lock(&managers[0], &key).acquire().await.expect("free");
    let campaigns: Vec<_> = managers
        .iter()
        .enumerate()
        .map(|(by, manager)| terms.campaign(by, lock(manager, &key), false))
        .collect();
    guard.release().await.expect("still held");
    let mut led = [terms.next().await.0, terms.next().await.0, terms.next().await.0];
    led.sort_unstable();
    assert_eq!(led, [0, 1, 2]);
    for campaign in campaigns {
        // Dropped at any point, it leaves nothing.
        campaign.abort();
        campaign.await.expect_err("aborted");
    }
    backend.becomes_free(&key, TEST_TIMEOUT).await;
    backend.forget_fences();
}

#[on(redis, postgres)]
async fn a_leader_that_loses_its_lock_leads_no_more_until_it_is_elected_again(backend: &Backend) {
    let (key, mut terms) = (backend.key("role"), Terms::new());
    let manager = backend.manager().await;
    let campaign = terms.campaign(0, lock(&manager, &key).ttl(ms(600)), true);
    let (_, first) = terms.next().await;
    let look = manager.inspector().lock(&key).await.expect("an answer").expect("held");
    manager.force_release(&look).await.expect("an answer");
    let (_, second) = terms.next().await;
    assert!(second > first);
    manager.shutdown(TEST_TIMEOUT).await.expect("its body is dropped");
    assert_eq!(ends(campaign).await, Ok(()));
    backend.forget_fences();
}

#[on(memory, redis, postgres)]
async fn a_mistake_is_returned_and_a_shutdown_ends_a_campaign(backend: &Backend) {
    let manager = backend.manager().await;
    let error = lock(&manager, "").lead(async |_| {}).await;
    assert!(matches!(error, Err(LockError::InvalidKey { .. })), "{error:?}");
    let (key, start) = (backend.key("role"), Instant::now());
    let rival = backend.manager().await;
    let guard = lock(&rival, &key).acquire().await.expect("free");
    let terms = Terms::new();
    let campaign = terms.campaign(0, lock(&manager, &key), true);
    if backend.admin().is_some() || backend.database().is_some() {
        let waits = async || {
            rival.inspector().waiters(&*key, 9).await.is_ok_and(|all| !all.items.is_empty())
        };
        eventually("it waits", TEST_TIMEOUT, waits).await;
    }
    manager.shutdown(TEST_TIMEOUT).await.expect("it holds nothing");
    assert_eq!(ends(campaign).await, Ok(()));
    assert!(start.elapsed() < LONG_TTL);
    guard.release().await.expect("still held");
    assert!(backend.is_free(&key).await);
}

/// Two lead for a moment then, and the fence tells them apart.
#[on(redis)]
async fn a_frozen_leader_is_followed_and_does_not_get_beyond_its_next_await(backend: &Backend) {
    let (proxy, key, next) = (backend.proxy(), backend.key("role"), backend.manager().await);
    let frozen = LockManager::connect(&proxy.url()).await.expect("there");
    let (led, mut leads) = unbounded_channel();
    let (thaw, thawed) = std::sync::mpsc::channel::<()>();
    let (ours, thawed) = (led.clone(), std::sync::Mutex::new(thawed));
    let lead = lock(&frozen, &key).ttl(ms(300)).manager(&frozen);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(lead.lead(async |term| {
            ours.send((0, term.fence())).expect("the test goes on");
            // A pause of the process stops this thread, and the renewals.
            let _ = thawed.lock().expect("no panic").recv();
            tokio::task::yield_now().await;
            ours.send((2, term.fence())).expect("the test goes on");
        }))
    });
    let (_, first) = leads.recv().await.expect("one leads");
    proxy.stall(true);
    let lead = lock(&next, &key);
    let follows = tokio::spawn(async move {
        lead.lead(async |term| {
            led.send((1, term.fence())).expect("the test goes on");
            pending().await
        })
        .await
    });
    let follower = timeout(TEST_TIMEOUT, leads.recv()).await.expect("in time").expect("one leads");
    assert!(follower.0 == 1 && follower.1 > first, "{follower:?}");
    proxy.stall(false);
    thaw.send(()).expect("it is frozen");
    frozen.shutdown(TEST_TIMEOUT).await.expect("its body is dropped");
    assert_eq!(thread.join().expect("no panic"), Ok(()));
    next.shutdown(TEST_TIMEOUT).await.expect("its body is dropped");
    assert_eq!(follows.await.expect("no panic"), Ok(()));
    assert_eq!(leads.recv().await, None, "the body went on after it was frozen");
    backend.forget_fences();
}
