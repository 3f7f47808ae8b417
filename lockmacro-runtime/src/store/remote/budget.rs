//! The time limits of a call, and its retries: a broken connection is replaced at once; after that
//! the delay grows, until the caller's budget is used up.

use std::time::Duration;

use tokio::time::sleep;

use crate::store::backend::CALLS_PER_TIMEOUT;
use crate::store::remote::error::{RemoteError, Transient};
use crate::sys::backoff::Backoff;
use crate::sys::time::Instant;
use crate::value::applied::Applied;
use crate::value::error::UnavailableReason;

/// How long a caller without a wait waits for a server that is down, besides some round trips: to
/// connect, to log in, and for the answer.
const PROBE: Duration = Duration::from_millis(40);
const PROBE_ROUND_TRIPS: u32 = 5;

/// Delay before the third try; the second follows at once.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Longest delay between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// The same for a caller that waits long: a crowd of such callers asks no more often than it
/// would from the queue.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The time limits of a call: for each command, and for the whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    /// Longest time for the answer to one command.
    pub(crate) answer: Duration,
    /// The end of the whole call, retries included.
    pub(crate) until: Instant,
    /// Whether a single unanswered call is enough to discard the connection.
    pub(crate) strict: bool,
}

impl Budget {
    /// From now on: up to `answer` for each command, and `all` for the whole.
    pub(crate) fn new(answer: Duration, all: Duration) -> Self {
        Self { answer, until: Instant::now() + all, strict: false }
    }

    /// For a manager with this timeout.
    pub(crate) fn within(timeout: Duration) -> Self {
        Self::new(timeout / CALLS_PER_TIMEOUT, timeout)
    }

    /// For callers that must not be delayed: the time of one answer for the whole call.
    pub(crate) fn brief(timeout: Duration) -> Self {
        Self::new(timeout / CALLS_PER_TIMEOUT, timeout / CALLS_PER_TIMEOUT)
    }

    /// For a caller that does not wait, of a server that is down and has this round trip.
    pub(crate) fn probe(round_trip: Duration) -> Self {
        let probe = PROBE + PROBE_ROUND_TRIPS * round_trip;
        Self::new(probe, probe)
    }

    /// For a caller that waits until then anyway: transient errors are retried for so long.
    pub(crate) fn until(until: Instant, timeout: Duration) -> Self {
        let usual = Self::within(timeout);
        Self { until: until.max(Instant::now() + usual.answer), ..usual }
    }
}

/// The retries of one call.
pub(crate) struct Retry {
    pub(crate) budget: Budget,
    /// Whether the earlier calls were applied.
    pub(crate) earlier: Applied,
    began: Instant,
    /// The delay before the next try.
    pause: Duration,
    /// The delays after that one.
    backoff: Backoff,
    /// The most specific error: a timeout at the end says less than an error reply before it.
    clearest: Option<Transient>,
}

impl Retry {
    pub(crate) fn new(budget: Budget) -> Self {
        let began = Instant::now();
        let pause = Duration::ZERO;
        let backoff = Backoff::new(FIRST_PAUSE, LONGEST_WAIT);
        Self { budget, earlier: Applied::No, began, pause, backoff, clearest: None }
    }

    /// Repeats a call for as long as its errors are transient, within the budget. The call takes
    /// the budget, and whether the calls before it were applied.
    pub(crate) async fn repeat<T, F>(
        &mut self,
        mut call: impl FnMut(Budget, Applied) -> F,
    ) -> Result<T, RemoteError>
    where
        F: Future<Output = Result<T, RemoteError>>,
    {
        loop {
            match call(self.budget, self.earlier).await {
                Err(error) => {
                    self.earlier = self.earlier.and(error.applied());
                    self.after(error.transient()?).await?;
                }
                answer => return answer,
            }
        }
    }

    /// Waits before the next try. Returns the error for the caller when no time is left for one.
    async fn after(&mut self, error: Transient) -> Result<(), RemoteError> {
        if Instant::now() + self.pause >= self.budget.until {
            let clearest = self.clearest.take().filter(|last| weight(last) > weight(&error));
            return Err(RemoteError::Transient(clearest.unwrap_or(error)));
        }
        if self.clearest.as_ref().is_none_or(|last| weight(&error) >= weight(last)) {
            self.clearest = Some(error);
        }
        sleep(self.pause).await;
        // After a long time the limit of the delay is a tenth of that time.
        let longest = (self.began.elapsed() / 10).clamp(LONGEST_PAUSE, LONGEST_WAIT);
        self.pause = self.backoff.next_within(longest);
        Ok(())
    }
}

/// How specific an error is: a timeout least, a broken connection more, an error reply most.
fn weight(error: &Transient) -> u8 {
    match error.reason {
        UnavailableReason::Timeout | UnavailableReason::TooSlow => 0,
        UnavailableReason::Disconnected => 1,
        _ => 2,
    }
}
