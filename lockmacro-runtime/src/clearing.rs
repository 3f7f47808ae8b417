//! Giving back what nobody waits for.
//!
//! Whatever was dropped is tried for a first time before anything is tried again: neither what a
//! server did not answer for, nor what was given back and may be asked for by a late request,
//! is ever in the way of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{Backend, Claim, Released};
use crate::census::Member;
use crate::error::{LockError, Unavailability};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Longest pause while the server cannot be asked.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// So many releases are under way at once; when a server comes back, it is not stormed.
const AT_ONCE: usize = 256;
/// The same for what is tried again, and for what was answered once.
const AGAIN_AT_ONCE: usize = 64;
/// So many wait for each at most; what comes on top is left to its ttl.
const PLACES: usize = 50_000;

/// What is to be given back, by what is known of it.
#[derive(Debug)]
pub(crate) struct Clearing {
    /// Not tried yet.
    untried: Room,
    /// Tried, and the server could not be asked.
    unanswered: Room,
    /// Given back, but a request may still be under way that takes it again.
    late: Late,
}

#[derive(Debug)]
struct Room {
    places: Arc<Semaphore>,
    turns: Semaphore,
}

/// A claim's place.
pub(crate) type Place = OwnedSemaphorePermit;

impl Default for Clearing {
    fn default() -> Self {
        Self::with(PLACES)
    }
}

impl Clearing {
    fn with(places: usize) -> Self {
        let room = |at_once| Room {
            places: Arc::new(Semaphore::new(places)),
            turns: Semaphore::new(at_once),
        };
        let late = Late {
            places,
            turns: Semaphore::new(AGAIN_AT_ONCE),
            last: AtomicU64::new(0),
            inside: Mutex::default(),
        };
        Self { untried: room(AT_ONCE), unanswered: room(AGAIN_AT_ONCE), late }
    }

    /// A place for a lock that was not tried yet; none when too many are before it.
    pub(crate) fn enter(&self) -> Option<Place> {
        Arc::clone(&self.untried.places).try_acquire_owned().ok()
    }

    /// Releases a lock, as often as it takes until its lease is over. `member` leaves when it is
    /// given back.
    pub(crate) async fn clear_away(
        &self,
        backend: &Backend,
        claim: &Claim,
        member: Member,
        place: Place,
    ) {
        let end = Instant::now() + claim.lasts();
        let first = self.untried.release(backend, claim).await;
        drop(place);
        if let Err(error) = first
            && let Err(error) = self.try_again(backend, claim, error, end).await
        {
            let key = claim.listed();
            tracing::warn!(%key, %error, "what was dropped is left to its ttl");
            return;
        }
        drop(member);
        if !claim.is_settled() {
            self.look_again(backend, claim, end).await;
        }
    }

    /// Until the server has answered, or why it is not tried any longer.
    async fn try_again(
        &self,
        backend: &Backend,
        claim: &Claim,
        mut error: LockError,
        end: Instant,
    ) -> Result<(), LockError> {
        if is_final(&error) {
            return Err(error);
        }
        let Ok(_place) = self.unanswered.places.try_acquire() else {
            let detail = format!("too many dropped locks wait for the server: {error}");
            return Err(LockError::Unavailable { reason: Unavailability::Local, detail });
        };
        let mut pause = FIRST_PAUSE;
        while !is_final(&error) && Instant::now() + pause <= end {
            sleep(spread(pause)).await;
            pause = (pause * 3).min(LONGEST_PAUSE);
            match self.unanswered.release(backend, claim).await {
                Ok(_) => return Ok(()),
                Err(now) => error = now,
            }
        }
        Err(error)
    }

    /// A request that was given up may still be under way, in a network that was cut for a while.
    /// The later it arrives the longer it was kept, so the pauses grow.
    async fn look_again(&self, backend: &Backend, claim: &Claim, end: Instant) {
        let mut place = self.late.enter();
        let mut pause = FIRST_PAUSE;
        loop {
            if claim.is_doubtful() {
                // A node of several has not answered, and may be back soon.
                pause = pause.min(LONGEST_PAUSE);
            }
            if Instant::now() + pause > end
                || timeout(spread(pause), &mut place.let_go).await.is_ok()
            {
                return;
            }
            pause *= 3;
            let turn = self.late.turns.acquire().await;
            let released = backend.release(claim).await;
            drop(turn);
            match released {
                Ok(_) if claim.is_settled() => return,
                Ok(_) => {}
                Err(error) if is_final(&error) => return,
                Err(_) => pause = pause.min(LONGEST_PAUSE),
            }
        }
    }
}

impl Room {
    async fn release(&self, backend: &Backend, claim: &Claim) -> Result<Released, LockError> {
        let _turn = self.turns.acquire().await;
        backend.release(claim).await
    }
}

/// What was given back, the oldest first. When there are too many of them the oldest is let go:
/// it was looked at most often, and is the least likely to be asked for again.
#[derive(Debug)]
struct Late {
    places: usize,
    turns: Semaphore,
    last: AtomicU64,
    inside: Mutex<BTreeMap<u64, oneshot::Sender<()>>>,
}

#[derive(Debug)]
struct LatePlace<'a> {
    late: &'a Late,
    number: u64,
    /// Resolves when this place is given to a younger one.
    let_go: oneshot::Receiver<()>,
}

impl Late {
    fn enter(&self) -> LatePlace<'_> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let (keep, let_go) = oneshot::channel();
        let mut inside = self.inside();
        inside.insert(number, keep);
        if inside.len() > self.places {
            inside.pop_first();
        }
        LatePlace { late: self, number, let_go }
    }

    fn inside(&self) -> MutexGuard<'_, BTreeMap<u64, oneshot::Sender<()>>> {
        // Nothing that runs under this mutex can panic.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LatePlace<'_> {
    fn drop(&mut self) {
        self.late.inside().remove(&self.number);
    }
}

fn spread(pause: Duration) -> Duration {
    pause.mul_f64(0.8 + 0.4 * fastrand::f64())
}

/// Whether a release that failed so would fail again.
fn is_final(error: &LockError) -> bool {
    match error {
        LockError::Unavailable { reason, .. } => *reason == Unavailability::Protocol,
        LockError::AccessDenied { .. } | LockError::Authentication { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::backend::{Memory, Redis};
    use crate::census::Census;
    use crate::clock::Moment;
    use crate::token::Token;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// One whose request may still be under way.
    fn claim(nth: usize) -> Arc<Claim> {
        let token = Token::new("test", "", "", Moment::now()).unwrap();
        Arc::new(Claim::new(nth.to_string().into(), token, HOUR))
    }

    fn memory() -> (Memory, Arc<Backend>) {
        let memory = Memory::new();
        (memory.clone(), Arc::new(Backend::Memory(memory)))
    }

    async fn until(done: impl Fn() -> bool) {
        let start = std::time::Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(60), "not in time");
            sleep(Duration::from_millis(1)).await;
        }
    }

    struct Cleared {
        clearing: Arc<Clearing>,
        census: Census,
        under_way: JoinSet<()>,
    }

    impl Cleared {
        fn with(places: usize) -> Self {
            let (clearing, census) = (Arc::new(Clearing::with(places)), Census::default());
            Self { clearing, census, under_way: JoinSet::new() }
        }

        fn begin(&mut self, backend: &Arc<Backend>, claim: Arc<Claim>) {
            let (clearing, backend) = (Arc::clone(&self.clearing), Arc::clone(backend));
            let (place, member) = (clearing.enter().expect("a place"), self.census.join());
            self.under_way.spawn(async move {
                clearing.clear_away(&backend, &claim, member, place).await;
            });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_answered_is_in_the_way_of_nobody() {
        let (memory, backend) = memory();
        let mut cleared = Cleared::with(2);
        for nth in 0..9 {
            cleared.begin(&backend, claim(nth));
            cleared.census.empty().await;
        }
        let victim = claim(0);
        memory.acquire(&victim);
        cleared.begin(&backend, victim);
        cleared.census.empty().await;
        assert!(memory.holds_nothing());
        // Of those that are looked at again the oldest were let go.
        while cleared.under_way.len() > 2 {
            cleared.under_way.join_next().await.unwrap().unwrap();
        }
        let inside: Vec<_> = cleared.clearing.late.inside().keys().copied().collect();
        assert_eq!(inside, [8, 9]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_request_is_taken_back_and_then_nothing_is_kept() {
        let (memory, backend) = memory();
        let mut cleared = Cleared::with(2);
        let late = claim(0);
        cleared.begin(&backend, Arc::clone(&late));
        cleared.census.empty().await;
        memory.acquire(&late);
        until(|| memory.holds_nothing()).await;
        cleared.under_way.join_next().await.unwrap().unwrap();
        assert!(cleared.clearing.late.inside().is_empty());
    }

    #[tokio::test]
    async fn what_a_server_does_not_answer_for_is_in_the_way_of_nobody() {
        let (memory, backend) = memory();
        // Port 1 of this machine: nobody is there.
        let gone = Redis::new("redis://127.0.0.1:1", Duration::from_millis(20));
        let gone = Arc::new(Backend::Redis(Arc::new(gone.unwrap())));
        let mut cleared = Cleared::with(2);
        let places = Arc::clone(&cleared.clearing.untried.places);
        for nth in 0..9 {
            cleared.begin(&gone, claim(nth));
            // Each has its first try, and only two are tried again.
            until(|| places.available_permits() == 2).await;
        }
        let victim = claim(0);
        victim.settle(true);
        memory.acquire(&victim);
        cleared.begin(&backend, victim);
        until(|| memory.holds_nothing()).await;
        assert_eq!(cleared.census.count(), 2);
    }
}
