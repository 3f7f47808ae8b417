//! Whether and when a dropped lock is released once more.

use std::time::Duration;

use crate::engine::cleanup::DroppedLock;
use crate::protocol::answer::Released;
use crate::protocol::request::Request;
use crate::store::servers::Servers;
use crate::value::backoff::Backoff;
use crate::value::error::LockError;
use crate::value::time::Instant;
use crate::value::unavailability::Unavailability;

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

/// The pauses between the tries of a lock.
pub(crate) fn pauses() -> Backoff {
    Backoff::growing(FIRST_PAUSE, LONGEST_PAUSE, GROWTH)
}

/// The pause before the next release; `None` when there is none. A lock that was released no longer
/// counts as in flight.
pub(crate) fn next_release(
    servers: &dyn Servers,
    lock: &mut DroppedLock,
    released: &Result<Released, LockError>,
) -> Option<Duration> {
    // A node of a Redlock may have a token, and may be back soon.
    let is_doubtful = lock.request.is_doubtful();
    if released.is_ok() && !is_doubtful {
        lock.guard = None;
    }
    let error = match released {
        Ok(_) if lock.request.applied().is_known() => return None,
        Ok(_) if is_doubtful => {
            if lock.times >= DOUBTFUL_TRIES {
                lock.guard = None;
            }
            if lock.guard.is_none() {
                // Not counted: a request on its way to the node may still arrive after its answer.
                lock.times = 0;
            }
            return Some(lock.pauses.step());
        }
        // The abandoned request may still be in flight, in a network that was cut for a while.
        Ok(_) if lock.times >= MAX_RELEASES => return None,
        Ok(_) if lock.times + 1 == MAX_RELEASES => return Some(LAST_PAUSE),
        Ok(_) => return Some(lock.pauses.step()),
        Err(error) => error,
    };
    let (several, lost) = (servers.are_several(), servers.is_lost(&lock.request));
    // An outage may end before the server counts as lost. A lock that is given up meanwhile would
    // stay for the rest of its ttl.
    let passes = error.is_transient();
    if passes {
        lock.times = lock.times.saturating_sub(1);
    }
    let is_tried = passes || lock.times < MAX_RELEASES || is_doubtful || lost || several;
    let pause = lock.pauses.step();
    if is_final(error) || !is_tried || Instant::now() + pause > lock.end {
        if lock.guard.is_some() {
            log_left(servers, &lock.request, error);
        }
        return None;
    }
    Some(pause)
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
    use std::sync::Arc;

    use super::*;
    use crate::engine::cleanup::Cleanup;
    use crate::engine::in_flight::InFlight;
    use crate::store::memory::Memory;
    use crate::value::applied::Applied;
    use crate::value::token::Token;

    /// The release of a lock on a node that hangs succeeds by the answers of the other nodes.
    #[test]
    fn a_lock_is_released_until_the_last_node_has_answered() {
        let token = Token::new("test", "", "").unwrap();
        let request = Request::new("order:1".into(), token, Duration::from_secs(60));
        request.set_applied(Applied::No);
        let attempts = request.attempts();
        let vote = attempts.sends(2, attempts.begin(), (7, request.ttl)).unwrap();
        vote.answered(Applied::Yes);
        let cleanup = Arc::new(Cleanup::default());
        let mut lock = cleanup.take(Arc::new(request), InFlight::default().join()).unwrap();
        let again =
            |lock: &mut DroppedLock| next_release(&Memory::new(), lock, &Ok(Released::Held));
        for nth in 1..4 * MAX_RELEASES {
            lock.times += 1;
            assert!(again(&mut lock).is_some_and(|pause| pause < LAST_PAUSE));
            assert_eq!(
                lock.guard.is_some(),
                nth < DOUBTFUL_TRIES,
                "a shutdown waits for two tries"
            );
        }
        attempts.gone(2, 1);
        assert_eq!(again(&mut lock), None);
    }
}
