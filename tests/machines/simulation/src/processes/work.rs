//! What a process does: its workers call the public API, one call after the other.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, LossCause, UnavailableReason};
use tokio::time::sleep;

use crate::processes::blocking;
use crate::processes::call::{Call, How, Sharing, Wait};
use crate::processes::deferred::{self, Working};
use crate::processes::polls::{DroppedAt, Sleeping};
use crate::processes::scenario::{LONGEST_TTL, Plan, Scenario, Store};
use crate::processes::sim::sim;

/// How long a manager may take to shut down.
const SHUTDOWN_MAX: Duration = Duration::from_secs(60);

/// How long a guard is kept that does not release the lock.
const SHARED: Duration = Duration::from_secs(3);

/// The name of a lock.
pub(crate) fn name_of(key: usize) -> String {
    format!("key:{key}")
}

/// With what the tokens of a process begin.
pub(crate) fn label_of(process: usize) -> String {
    format!("p{process}")
}

/// Starts a process.
pub(crate) fn start(scenario: &Scenario, plan: &Plan) {
    let (store, plan) = (scenario.store, Arc::new(plan.clone()));
    let process = sim().start_process(plan.clock);
    drop(process.spawn(live(store, plan)));
}

async fn live(store: Store, plan: Arc<Plan>) {
    let wait = plan.starts.saturating_sub(sim().now());
    sleep(wait).await;
    let mut managers = Vec::new();
    for _ in 0..plan.managers {
        managers.push(connect(store, &plan).await);
    }
    let working = plan.works.then(|| Working::start(&managers[0]));
    let mut workers = Vec::new();
    if let Some(at) = plan.ends_early {
        for locks in managers.clone() {
            workers.push(here().spawn(async move {
                let wait = at.saturating_sub(sim().now());
                sleep(wait).await;
                shut_down(&locks).await;
            }));
        }
    }
    for worker in 0..plan.workers.len() {
        let (plan, locks) = (Arc::clone(&plan), managers[worker % plan.managers].clone());
        let work = async move {
            for call in &plan.workers[worker] {
                sleep(call.pause).await;
                one_call(worker, call, &locks, &plan).await;
            }
        };
        workers.push(here().spawn(work));
    }
    for worker in workers {
        if worker.await.is_err() {
            sim().fails("panic", "a worker has panicked");
        }
    }
    if plan.lasts {
        deferred::all_ran(&plan).await;
    }
    if let Some(working) = working {
        working.stop().await;
    }
    for locks in managers.iter().filter(|_| plan.shuts_down) {
        shut_down(locks).await;
    }
    drop(managers);
    trace!("is over");
    here().set_over();
}

async fn shut_down(locks: &LockManager) {
    let ended = locks.shutdown(SHUTDOWN_MAX).await;
    trace!("shut down: {ended:?}");
    if let Err(error) = ended {
        sim().fails("shutdown", error);
    }
}

pub(crate) fn here() -> std::rc::Rc<crate::processes::process::Process> {
    sim().current().expect("a process runs")
}

/// Connects, again and again while the servers fail.
async fn connect(store: Store, plan: &Plan) -> LockManager {
    loop {
        let nth = here().nth;
        let mut builder = LockManager::builder().label(label_of(nth)).timeout(plan.timeout);
        if let Some(turn) = plan.turn {
            builder = builder.turn(turn);
        }
        let connected = match store {
            Store::One => builder.connect("redis://s0:6379").await,
            Store::Replicated { acks, .. } => {
                let acks = u32::try_from(acks).expect("few");
                builder.replicated(acks, plan.timeout / 2).connect("redis://primary:6379").await
            }
            Store::Redlock(nodes) => {
                let nodes = (0..nodes).map(|nth| format!("redis://s{nth}:6379"));
                builder.longest_ttl(LONGEST_TTL).redlock(nodes).await
            }
        };
        match connected {
            Ok(locks) => return locks,
            Err(error) => trace!("not connected: {error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn one_call(worker: usize, call: &Call, locks: &LockManager, plan: &Plan) {
    trace!("{worker} calls {call:?}");
    here().begins(worker, format!("{call:?}"));
    let is_awake = call.sleeps.is_none();
    if let ([key], true) = (&call.keys[..], call.wait != Wait::No && is_awake) {
        sim().waits.begins(worker, *key);
    }
    let began = sim().now();
    sim().callers.begins(worker, call, plan);
    let made = DroppedAt { future: Some(Box::pin(make(worker, call, locks))), left: call.dropped };
    let made = Sleeping { future: pin!(made), worker, left: call.sleeps, asleep: None }.await;
    let failed = made.as_ref().and_then(|made| made.as_ref().err());
    sim().callers.ends(worker, call, failed);
    match made {
        Some(Ok(())) => trace!("{worker} is done"),
        Some(Err(error)) => {
            trace!("{worker} fails: {error}");
            let is_shut_down =
                plan.ends_early.is_some() && error == LockError::ShutDown { held: 0 };
            if !is_shut_down {
                expected(worker, call, &error, began);
            }
            if !sim().has_faults && call.wait == Wait::No && matches!(error, LockError::Busy { .. })
            {
                soon(sim().now() - began);
            }
        }
        None => trace!("{worker} is dropped"),
    }
    sim().waits.ends(worker);
    here().ended(worker);
}

/// While nothing fails, a caller that does not wait is answered in the time of a few requests: of
/// those of other callers before it, and of its own. At a Redlock each of them may try again.
fn soon(took: Duration) {
    if sim().network.hosts.borrow().len() > 1 || sim().sleeps.get() {
        return;
    }
    let most = sim().network.longest_grant() + Duration::from_millis(200);
    if took > most {
        sim().fails("late", format_args!("a caller that does not wait was refused after {took:?}"));
    }
}

/// While nothing fails, a call fails only because of other callers, or because its body takes too
/// long.
fn expected(worker: usize, call: &Call, error: &LockError, began: Duration) {
    let is_expected = match error {
        LockError::Busy { .. } | LockError::TimedOut { .. } | LockError::Deferred { .. } => true,
        LockError::Lost(lost) => match lost.cause() {
            LossCause::Expired => true,
            // The first release of a process that has waiters waits until they have subscribed. A
            // lease that is short, or almost over, may end meanwhile, after its body.
            LossCause::Taken => {
                let is_late = !call.renew && call.body > call.ttl.mul_f64(0.8);
                let is_over = !call.renew && sim().bodies.last_lease(worker) <= sim().now();
                is_late || is_over || call.sleeps.is_some() || call.ttl < Duration::from_secs(1)
            }
            _ => false,
        },
        LockError::Unavailable { reason: UnavailableReason::NoQuorum, .. } => true,
        // The wait was shorter than the time to connect, the answer was not looked at in time, or one
        // caller after the other was not polled.
        LockError::Unavailable { .. } => {
            matches!(call.wait, Wait::For(wait) if wait < Duration::from_millis(500))
                || call.sleeps.is_some()
                || sim().callers.slept_since(&call.keys, began)
        }
        _ => false,
    };
    if !is_expected && !sim().has_faults {
        sim().fails("errors", error);
    }
}

async fn make(worker: usize, call: &Call, locks: &LockManager) -> Result<(), LockError> {
    let made = match call.blocks {
        true => blocking::make(worker, call, locks).await,
        false => made(worker, call, locks).await,
    };
    match made {
        Err(busy) if call.defers && busy.is_busy() => {
            Err(deferred::later(locks, busy, call.keys[0]).await)
        }
        made => made,
    }
}

async fn made(worker: usize, call: &Call, locks: &LockManager) -> Result<(), LockError> {
    let lock = lock(call, locks);
    if call.fenced {
        let lock = lock.fenced();
        let guard = lock.acquire().await?;
        let fences: Vec<_> = lock.fences(&guard).into_iter().map(u64::from).collect();
        return hold(worker, call, guard, &fences).await;
    }
    match call.how {
        How::Run { in_background } if call.keys.len() == 1 => {
            let lock = if in_background { lock.release_in_background() } else { lock };
            lock.run(run_body(worker, call, locks)).await
        }
        _ => hold(worker, call, lock.acquire().await?, &[]).await,
    }
}

pub(crate) fn lock(call: &Call, locks: &LockManager) -> Lock {
    let keys: Vec<_> = call.keys.iter().map(|key| name_of(*key)).collect();
    let lock = match &keys[..] {
        [key] => Lock::new(key.as_str()),
        keys => Lock::many(keys.iter().map(String::as_str)),
    };
    with(lock, call).manager(locks)
}

fn with(lock: Lock, call: &Call) -> Lock {
    let mut lock = sharing(lock.ttl(call.ttl), call);
    if call.renew {
        lock = lock.renew();
    }
    if let Some(max_hold) = call.max_hold {
        lock = lock.max_hold(max_hold);
    }
    if let Some(min_hold) = call.min_hold {
        lock = lock.min_hold(min_hold);
    }
    match call.wait {
        Wait::No => lock,
        Wait::For(wait) => lock.wait(wait),
        Wait::Forever => lock.wait_forever(),
    }
}

pub(crate) fn sharing(lock: Lock, call: &Call) -> Lock {
    match call.sharing {
        Sharing::Exclusive => lock,
        Sharing::Shared => lock.shared(),
        Sharing::Permits(permits) => lock.permits(permits),
    }
}

/// A body that looks at its guard by itself, and stops when the lock is lost.
async fn hold(
    worker: usize,
    call: &Call,
    guard: LockGuard,
    fences: &[u64],
) -> Result<(), LockError> {
    if guard.remaining().is_zero() {
        return guard.release().await;
    }
    let body = Body::enter(worker, call, guard.remaining(), fences);
    let shared = call.shares.then(|| guard.handle());
    let end = tokio::time::Instant::now() + call.body;
    if call.extends {
        let extended = guard.extend(call.ttl).await;
        trace!("extended: {extended:?}");
    }
    loop {
        let left = guard.remaining();
        body.relies(left);
        let rest = end.saturating_duration_since(tokio::time::Instant::now());
        if left.is_zero() || rest.is_zero() {
            break;
        }
        // A server that has lost its data ends a lease before its time.
        tokio::select! {
            biased;
            _ = guard.lost() => break,
            () = sleep(call.step.min(rest)) => {}
        }
    }
    drop(body);
    let released = match call.how {
        How::Guard { released: false } => {
            drop(guard);
            Ok(())
        }
        _ => guard.release().await,
    };
    if let Some(shared) = shared {
        // The lock is released all the same.
        sleep(SHARED).await;
        drop(shared);
    }
    released
}

/// A body that the engine stops when the lock is lost.
pub(crate) async fn run_body(
    worker: usize,
    call: &Call,
    locks: &LockManager,
) -> Result<(), LockError> {
    let left = || LockGuard::current().map(|guard| guard.remaining()).unwrap_or_default();
    if left().is_zero() {
        sim().fails("bodies", "a body begins without a lock");
        return Ok(());
    }
    let body = Body::enter(worker, call, left(), &[]);
    if call.reenters {
        let again = sharing(Lock::new(name_of(call.keys[0])), call).manager(locks);
        match again.acquire().await {
            Ok(again) if again.is_joined() => {}
            other => sim().fails("re-entry", format_args!("{worker} has not joined: {other:?}")),
        }
    }
    let end = tokio::time::Instant::now() + call.body;
    loop {
        let left = left();
        body.relies(left);
        if left.is_zero() {
            sim().fails("bodies", "a body runs on after its lease");
        }
        let rest = end.saturating_duration_since(tokio::time::Instant::now());
        if rest.is_zero() {
            break;
        }
        sleep(call.step.min(rest)).await;
    }
    Ok(())
}

/// A body, until it ends in whatever way.
pub(crate) struct Body {
    number: u64,
    began: Duration,
    kept: Option<(usize, Duration)>,
}

impl Body {
    pub(crate) fn enter(worker: usize, call: &Call, left: Duration, fences: &[u64]) -> Self {
        let sim = sim();
        sim.waits.check();
        let number = sim.bodies.enter(worker, call, left, fences);
        sim.waits.ends(worker);
        sim.callers.enters(worker);
        sim.callers.look();
        // The grant may be much older than a body whose caller was not polled.
        let min_hold = call.min_hold.filter(|_| call.sleeps.is_none());
        let kept = min_hold.map(|min_hold| (call.keys[0], min_hold));
        Self { number, began: sim.now(), kept }
    }

    pub(crate) fn relies(&self, left: Duration) {
        sim().bodies.relies(self.number, left);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let sim = sim();
        sim.waits.check();
        sim.bodies.leave(self.number);
        if let Some((key, min_hold)) = self.kept {
            sim.bodies.keeps(key, self.began, min_hold);
        }
        sim.waits.check();
    }
}
