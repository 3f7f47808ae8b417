//! Trying again: a broken connection is replaced at once, then a server is given time, and all of
//! it ends when the caller's patience does.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::{CallError, Transient};
use crate::value::backoff::jittered;
use crate::value::unavailability::Unavailability;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// The same for who waits long: a crowd of them is not to ask more often than it does in line.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

pub(crate) struct Retry {
    pub(crate) budget: Budget,
    /// An earlier call may have been applied.
    pub(crate) unknown: bool,
    began: Instant,
    pause: Duration,
    /// The last of what told most: silence at the end tells less than a server's words before it.
    clearest: Option<Transient>,
}

impl Retry {
    pub(crate) fn new(budget: Budget) -> Self {
        let (began, pause) = (Instant::now(), Duration::ZERO);
        Self { budget, unknown: false, began, pause, clearest: None }
    }

    /// Waits before the next try, or gives what to tell the caller when there is no time for one.
    pub(crate) async fn after(&mut self, error: Transient) -> Result<(), CallError> {
        self.unknown |= error.unknown;
        if Instant::now() + self.pause >= self.budget.until {
            let clearest = self.clearest.take().filter(|told| weight(told) > weight(&error));
            return Err(CallError::Transient(clearest.unwrap_or(error)));
        }
        if self.clearest.as_ref().is_none_or(|told| weight(&error) >= weight(told)) {
            self.clearest = Some(error);
        }
        sleep(self.pause).await;
        // Twice as much each time, and not the same to everybody; after long a tenth of that.
        let longest = (self.began.elapsed() / 10).clamp(LONGEST_PAUSE, LONGEST_WAIT);
        let pause = (self.pause * 2).clamp(FIRST_PAUSE, longest);
        self.pause = jittered(pause);
        Ok(())
    }
}

/// How much a failed try tells: nothing in time, that the network is broken, or the server's words.
fn weight(error: &Transient) -> u8 {
    match error.reason {
        Unavailability::Timeout | Unavailability::TooSlow => 0,
        Unavailability::Disconnected => 1,
        _ => 2,
    }
}
