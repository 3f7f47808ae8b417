//! Whether and when a dropped lock is released once more.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::in_flight::InFlightGuard;
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::servers::Servers;
use crate::value::backoff::Backoff;
use crate::value::error::{LockError, Unavailability};
use crate::value::time::Instant;

/// The first and the longest pause between two tries of a release that failed. A lost server is
/// probed as often as the latter.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Length of a pause in percent of the pause before.
const GROWTH: u32 = 300;
/// Pause before the last release of a lock. A request that was not written within the manager's
/// timeout (2 s by default) is not sent any more.
pub(crate) const LAST_PAUSE: Duration = Duration::from_secs(6);
/// Most releases of one lock, beside those that fail only for a while. A lost server gets one
/// release a second for all of its locks.
const MAX_RELEASES: u8 = 3;

/// Tries that a shutdown waits for while a node of a Redlock may have a token: the first may end
/// when the other nodes have answered.
const DOUBTFUL_TRIES: u8 = 2;

/// A dropped lock and its releases so far.
#[derive(Debug)]
pub(crate) struct Tries {
    pub(crate) request: Arc<Request>,
    /// Counts the lock as in flight, until it was released.
    pub(crate) guard: Option<InFlightGuard>,
    /// End of its lease, or of its time in the queue.
    pub(crate) end: Instant,
    /// Number of releases.
    pub(crate) times: u8,
    pauses: Backoff,
}

impl Tries {
    pub(crate) fn new(request: Arc<Request>, guard: InFlightGuard) -> Self {
        let (end, times) = (Instant::now() + request.lasts(), 0);
        let pauses = Backoff::growing(FIRST_PAUSE, LONGEST_PAUSE, GROWTH);
        Self { request, guard: Some(guard), end, times, pauses }
    }

    /// The pause before the next release; `None` when there is none. A lock that was released no
    /// longer counts as in flight.
    pub(crate) fn next(
        &mut self,
        servers: &dyn Servers,
        released: &Result<Released, LockError>,
    ) -> Option<Duration> {
        // A node of a Redlock may have a token, and may be back soon.
        let is_doubtful = self.request.is_doubtful();
        if released.is_ok() && !is_doubtful {
            self.guard = None;
        }
        let error = match released {
            Ok(_) if self.request.applied().is_known() => return None,
            Ok(_) if is_doubtful => {
                if self.times >= DOUBTFUL_TRIES {
                    self.guard = None;
                }
                if self.guard.is_none() {
                    // Not counted: a request on its way to the node may still arrive.
                    self.times = 0;
                }
                return Some(self.pauses.step());
            }
            // The abandoned request may still be in flight, in a network that was cut for a while.
            Ok(_) if self.times >= MAX_RELEASES => return None,
            Ok(_) if self.times + 1 == MAX_RELEASES => return Some(LAST_PAUSE),
            Ok(_) => return Some(self.pauses.step()),
            Err(error) => error,
        };
        let (several, lost) = (servers.are_several(), servers.is_lost(&self.request));
        // An outage may end before the server counts as lost. A lock that is given up meanwhile
        // would stay for the rest of its ttl.
        let passes = error.is_transient();
        if passes {
            self.times = self.times.saturating_sub(1);
        }
        let is_tried = passes || self.times < MAX_RELEASES || is_doubtful || lost || several;
        let pause = self.pauses.step();
        if is_final(error) || !is_tried || Instant::now() + pause > self.end {
            if self.guard.is_some() {
                log_left(servers, &self.request, error);
            }
            return None;
        }
        Some(pause)
    }
}

/// Logs that a lock is not released and ends with its ttl.
fn log_left(servers: &dyn Servers, request: &Request, error: &LockError) {
    let key = request.listed();
    match error.is_of_servers() && !servers.is_news() {
        true => tracing::debug!(%key, %error, "dropped lock not released: it ends with its ttl"),
        false => tracing::warn!(%key, %error, "dropped lock not released: it ends with its ttl"),
    }
}

/// Whether a release that failed like this would fail again.
fn is_final(error: &LockError) -> bool {
    match error {
        LockError::Unavailable { reason, .. } => *reason == Unavailability::Protocol,
        LockError::AccessDenied { .. } | LockError::Authentication { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::in_flight::InFlight;
    use crate::store::memory::Memory;
    use crate::value::applied::Applied;
    use crate::value::token::Token;

    #[test]
    fn a_lock_whose_request_may_still_arrive_is_released_three_times() {
        let token = Token::new("test", "", "").unwrap();
        let request = Request::new("order:1".into(), token, Duration::from_secs(60));
        let mut tries = Tries::new(Arc::new(request), InFlight::default().join());
        let again = |tries: &mut Tries| {
            tries.times += 1;
            tries.next(&Memory::new(), &Ok(Released::NotHeld))
        };
        let pauses = [again(&mut tries), again(&mut tries), again(&mut tries)];
        assert_eq!(pauses, [Some(FIRST_PAUSE), Some(LAST_PAUSE), None]);
    }

    /// The release of a lock on a node that hangs succeeds by the answers of the other nodes.
    #[test]
    fn a_lock_is_released_until_the_last_node_has_answered() {
        let token = Token::new("test", "", "").unwrap();
        let request = Request::new("order:1".into(), token, Duration::from_secs(60));
        request.set_applied(Applied::No);
        let attempts = Arc::clone(&request.all_attempts()[0]);
        let vote = attempts.sends(2, attempts.begin(), (7, request.ttl)).unwrap();
        vote.answered(Applied::Yes);
        let mut tries = Tries::new(Arc::new(request), InFlight::default().join());
        let again = |tries: &mut Tries| tries.next(&Memory::new(), &Ok(Released::Held));
        for nth in 1..4 * MAX_RELEASES {
            tries.times += 1;
            assert!(again(&mut tries).is_some_and(|pause| pause < LAST_PAUSE));
            assert_eq!(tries.guard.is_some(), nth < DOUBTFUL_TRIES, "a shutdown waits for two");
        }
        attempts.gone(2, 1);
        assert_eq!(again(&mut tries), None);
    }
}
