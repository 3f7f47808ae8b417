//! Releases that no caller waits for, by key. Such a release may leave the lock contended for a
//! caller of the same manager. The caller waits for the release, and asks the store again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use crate::engine::in_flight::{InFlight, InFlightGuard};
use crate::protocol::answer::{Answer, Asked, Failed, Grant};
use crate::protocol::request::Request;
use crate::protocol::shutdown::Shutdown;
use crate::store::dispatch::Store;
use crate::value::key::LockKey;
use crate::value::random::HashMap;
use crate::value::sync::Mutex;
use crate::value::time::Instant;
use crate::value::token::hash_of;

/// Longest wait for a release in flight, as a multiple of the server's answer time.
const ANSWERS: u32 = 4;
/// Lower bound of that wait.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// Bound of the keys that are kept without a release, beside as many keys as there are releases.
const UNUSED_MAX: usize = 64;

/// The releases of a manager that no caller waits for, until each is known to be applied.
#[derive(Debug, Default)]
pub(crate) struct Releasing {
    all: InFlight,
    /// By the hash of the key. Two keys with the same hash cost a second request.
    keys: Mutex<HashMap<u64, InFlight>>,
}

impl Releasing {
    /// Records a release of these keys. The release counts as in flight until the guards are
    /// dropped.
    pub(crate) fn join(&self, keys: &[LockKey]) -> Vec<InFlightGuard> {
        let mut of_key = self.keys.lock();
        if of_key.len() > 2 * self.all.count() + UNUSED_MAX {
            of_key.retain(|_, releases| releases.count() > 0);
        }
        let join = |key| [self.all.join(), of_key.entry(hash(key)).or_default().join()];
        keys.iter().flat_map(join).collect()
    }

    /// The releases of these keys that are in flight.
    fn of(&self, keys: &[LockKey]) -> Vec<InFlight> {
        if self.all.count() == 0 {
            return Vec::new();
        }
        let of_key = self.keys.lock();
        let releases = keys.iter().filter_map(|key| of_key.get(&hash(key)));
        releases.filter(|releases| releases.count() > 0).cloned().collect()
    }

    /// Whether a release of a key is in flight.
    pub(crate) fn is_in_flight(&self, key: &LockKey) -> bool {
        !self.of(std::slice::from_ref(key)).is_empty()
    }

    /// Sends a request as [`Store::acquire`] does. If the lock is contended, and a release of it
    /// was in flight, the request is sent again after that release.
    pub(crate) fn acquire(
        &self,
        store: &Arc<Store>,
        request: &Arc<Request>,
        shutdown: &Arc<Shutdown>,
    ) -> Asked<'static, Result<Answer, Failed>> {
        let (asked, releases) = (store.acquire(request, shutdown), self.of(request.keys()));
        if releases.is_empty() {
            return asked;
        }
        let (store, request, shutdown) = (store.clone(), request.clone(), shutdown.clone());
        Box::pin(async move {
            let answer = asked.await;
            let Ok(Answer::Contended { earlier: first, .. }) = answer else { return answer };
            let until = Instant::now() + (store.servers().answer_time() * ANSWERS).max(WAIT_MIN);
            let over = Box::pin(async {
                for releases in releases {
                    // A release that takes longer is not waited for: then the lock is contended for
                    // another reason.
                    let _ = timeout_at(until, releases.empty()).await;
                }
                Ok(())
            });
            let over = shutdown.unless(over).await;
            over.map_err(|failed| Failed { applied: first, ..failed })?;
            if request.was_released() {
                // Of several keys, those that were free.
                return Ok(Answer::Lost(Box::new(answer)));
            }
            let mut again = store.acquire(&request, &shutdown).await;
            if let Ok(Answer::Contended { earlier, .. } | Answer::Granted(Grant { earlier, .. })) =
                &mut again
            {
                *earlier = earlier.and(first);
            }
            again
        })
    }
}

fn hash(key: &LockKey) -> u64 {
    hash_of(key.as_str().as_bytes())
}
