//! The requests of cohorts. The background thread sends them, so that the answer is delivered even
//! if no caller is polled.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use futures_util::future::{Either, select};
use tokio::time::timeout;

use crate::engine::acquisition::Acquisition;
use crate::engine::cohort::Cohort;
use crate::engine::cohort_member::Member;
use crate::engine::core::Core;
use crate::engine::forming::FormingKey;
use crate::protocol::other_holder::OtherHolder;
use crate::protocol::request::Request;
use crate::protocol::witness::Witness;
use crate::store::dispatch::Store;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::limits::CONFIRM_WINDOW;
use crate::value::mode::Mode;
use crate::value::sync::Mutex;

/// A caller that shares its key.
pub(crate) enum Shares {
    /// It asks for itself. A cohort forms until the answer.
    Asks(Request, Arc<Unanswered>),
    Joins(Member),
    /// It asks for itself, and has a token of its own.
    Apart(Request),
}

/// Finds out how a caller that shares its keys asks for them.
pub(crate) fn arrives(core: &Arc<Core>, request: Request) -> Shares {
    let may_join = request.several().is_empty()
        && request.key.mode() == Mode::Shared
        && !request.fenced
        && request.min_hold().is_zero()
        && core.passes_on();
    if !may_join {
        return Shares::Apart(request);
    }
    let key = FormingKey { key: request.key.as_str().into(), ttl: request.ttl };
    let join = |cohort, request, sends_soon| {
        Member::new(cohort, core, key.clone(), request, (sends_soon, send_early))
    };
    match core.forming().enter(&key, request, join) {
        Ok(member) => Shares::Joins(member),
        Err(mut request) => {
            let unanswered = Unanswered::new(core, key);
            if request.until.is_some() {
                request.is_watched_by(Arc::new(Watch(Arc::downgrade(&unanswered))));
            }
            Shares::Asks(request, unanswered)
        }
    }
}

/// A request without an answer. The next cohort of its key is sent when it has one, or is dropped.
pub(crate) struct Unanswered {
    core: Arc<Core>,
    key: FormingKey,
    is_over: AtomicBool,
}

impl Unanswered {
    fn new(core: &Arc<Core>, key: FormingKey) -> Arc<Self> {
        Arc::new(Self { core: Arc::clone(core), key, is_over: AtomicBool::new(false) })
    }

    /// The request has an answer.
    fn answered(&self) {
        if !self.is_over.swap(true, Ordering::AcqRel) {
            send_next(&self.core, &self.key);
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.answered();
    }
}

impl fmt::Debug for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unanswered").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Learns that a request waits. The request may outlast its caller, so it does not keep what the
/// caller has.
#[derive(Debug)]
struct Watch<T>(Weak<T>);

/// A caller's own request, which waits.
impl Witness for Watch<Unanswered> {
    fn contended(&self, _: &OtherHolder, _: u32) {
        self.0.upgrade().iter().for_each(|unanswered| unanswered.answered());
    }

    fn failed(&self, _: LockError) {
        self.0.upgrade().iter().for_each(|unanswered| unanswered.answered());
    }

    fn undecided(&self, _: &OtherHolder) {
        self.0.upgrade().iter().for_each(|unanswered| unanswered.answered());
    }

    fn callers(&self) -> usize {
        1
    }
}

/// A cohort's request. If this is dropped before its answer, each member asks for itself.
#[derive(Debug)]
struct Sent {
    cohort: Arc<Cohort>,
    unanswered: Arc<Unanswered>,
}

impl Witness for Watch<Sent> {
    fn contended(&self, holder: &OtherHolder, rank: u32) {
        if let Some(sent) = self.0.upgrade() {
            let key = LockKey::from(&*sent.unanswered.key.key);
            let is_released = sent.unanswered.core.releasing().is_in_flight(&key);
            sent.cohort.contended(holder, rank, is_released);
            sent.unanswered.answered();
        }
    }

    fn failed(&self, error: LockError) {
        if let Some(sent) = self.0.upgrade() {
            sent.cohort.unanswered(&error);
            sent.unanswered.answered();
        }
    }

    fn undecided(&self, _: &OtherHolder) {
        self.0.upgrade().iter().for_each(|sent| sent.unanswered.answered());
    }

    fn callers(&self) -> usize {
        self.0.upgrade().map_or(1, |sent| sent.cohort.waiting())
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.cohort.failed();
    }
}

/// Sends the request of the cohort that forms for a key, before the last request is answered.
fn send_early(core: &Arc<Core>, key: &FormingKey) {
    match core.forming().early::<Cohort>(key) {
        Some(cohort) if cohort.forms() => send(core, key, cohort),
        // As if this request was sent and answered.
        Some(_) => send_next(core, key),
        None => {}
    }
}

/// A request was answered: sends that of the cohort that forms for its key.
fn send_next(core: &Arc<Core>, key: &FormingKey) {
    while let Some(cohort) = core.forming().answered::<Cohort>(key) {
        if cohort.forms() {
            return send(core, key, cohort);
        }
    }
}

fn send(core: &Arc<Core>, key: &FormingKey, cohort: Arc<Cohort>) {
    let unanswered = Unanswered::new(core, key.clone());
    let job = Arc::new(Mutex::new(Some(Arc::new(Sent { cohort, unanswered }))));
    // Kept here: a job that cannot be started must not be the last to drop it, because the next
    // cohort's request wants the mutex of the thread.
    let (kept, core_of_job) = (Arc::clone(&job), Arc::clone(core));
    let sent = core.background().spawn(move |store| async move {
        let taken = job.lock().take();
        if let Some(sent) = taken {
            ask(core_of_job, sent, store).await;
        }
    });
    if sent.is_err() {
        let refused = kept.lock().take();
        drop(refused);
    }
}

/// Requests the lock for a cohort, until all of its members have left.
async fn ask(core: Arc<Core>, sent: Arc<Sent>, store: Arc<Store>) {
    let cohort = Arc::clone(&sent.cohort);
    let Some(request) = request(&cohort, &sent) else { return };
    let mut acquisition = Acquisition::new(core, request);
    let answer = {
        let asked = pin!(acquisition.acquire_through(&store));
        match select(pin!(cohort.all_over()), asked).await {
            // Dropping the acquisition leaves the queue.
            Either::Left(_) => return,
            Either::Right((answer, _)) => answer,
        }
    };
    match answer {
        Ok(grant) => cohort.granted(&acquisition, &grant),
        Err(refusal) => cohort.refused(&refusal),
    }
    // Without a member that takes a part, this releases the lock.
    drop(acquisition);
    sent.unanswered.answered();
    if timeout(CONFIRM_WINDOW, cohort.all_over()).await.is_err() {
        cohort.evict();
    }
}

/// The request for the members that are there: the longest wait of theirs.
fn request(cohort: &Cohort, sent: &Arc<Sent>) -> Option<Request> {
    let drafts = cohort.drafts();
    let until = drafts.iter().filter_map(|draft| draft.until).max();
    // A caller that waits does not know since when it will hold the lock, and its token says so.
    let first = drafts.iter().find(|draft| draft.until.is_some()).or(drafts.first())?;
    let mut request = first.with_new_token().ok()?;
    request.until = until;
    if until.is_some() {
        request.is_watched_by(Arc::new(Watch(Arc::downgrade(sent))));
    }
    Some(request)
}
