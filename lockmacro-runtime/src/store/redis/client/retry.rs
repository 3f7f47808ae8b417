//! Trying again: a broken connection is replaced at once, then a server is given time, and all of
//! it ends when the caller's patience does.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::store::redis::client::budget::Patience;
use crate::store::redis::client::error::{Passing, Trouble};
use crate::value::unavailability::Unavailability;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// The same for who waits long: a crowd of them is not to ask more often than it does in line.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

pub(crate) struct Tries {
    pub(crate) patience: Patience,
    /// An earlier call may have been applied.
    pub(crate) unknown: bool,
    began: Instant,
    pause: Duration,
    /// The last of what told most: silence at the end tells less than a server's words before it.
    told: Option<Passing>,
}

impl Tries {
    pub(crate) fn new(patience: Patience) -> Self {
        let (began, pause) = (Instant::now(), Duration::ZERO);
        Self { patience, unknown: false, began, pause, told: None }
    }

    /// Waits before the next try, or gives what to tell the caller when there is no time for one.
    pub(crate) async fn after(&mut self, trouble: Passing) -> Result<(), Trouble> {
        self.unknown |= trouble.unknown;
        if Instant::now() + self.pause >= self.patience.until {
            let told = self.told.take().filter(|told| weight(told) > weight(&trouble));
            return Err(Trouble::Passing(told.unwrap_or(trouble)));
        }
        if self.told.as_ref().is_none_or(|told| weight(&trouble) >= weight(told)) {
            self.told = Some(trouble);
        }
        sleep(self.pause).await;
        // Twice as much each time, and not the same to everybody; after long a tenth of that.
        let longest = (self.began.elapsed() / 10).clamp(LONGEST_PAUSE, LONGEST_WAIT);
        let pause = (self.pause * 2).clamp(FIRST_PAUSE, longest);
        self.pause = pause.mul_f64(0.75 + fastrand::f64() / 4.0);
        Ok(())
    }
}

/// How much a failed try tells: nothing in time, that the network is broken, or the server's words.
fn weight(trouble: &Passing) -> u8 {
    match trouble.reason {
        Unavailability::Timeout | Unavailability::TooSlow => 0,
        Unavailability::Disconnected => 1,
        _ => 2,
    }
}
