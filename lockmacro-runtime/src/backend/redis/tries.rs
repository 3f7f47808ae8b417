//! Trying again: a broken connection is replaced at once, then a server is given time, and all of
//! it ends when the caller's patience does.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::node::Patience;
use super::trouble::{Passing, Trouble};
use crate::error::Unavailability;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Tries {
    pub(super) patience: Patience,
    /// An earlier call may have been applied.
    pub(super) unknown: bool,
    pause: Duration,
    /// What the server itself said last, which tells more than the silence after it.
    told: Option<Passing>,
}

impl Tries {
    pub(super) fn new(patience: Patience) -> Self {
        Self { patience, unknown: false, pause: Duration::ZERO, told: None }
    }

    /// Waits before the next try, or gives what to tell the caller when there is no time for one.
    pub(super) async fn after(&mut self, trouble: Passing) -> Result<(), Trouble> {
        self.unknown |= trouble.unknown;
        let is_silence = matches!(
            trouble.reason,
            Unavailability::Timeout | Unavailability::Disconnected | Unavailability::TooSlow
        );
        if Instant::now() + self.pause >= self.patience.until {
            let told = self.told.take().filter(|_| is_silence);
            return Err(Trouble::Passing(told.unwrap_or(trouble)));
        }
        if !is_silence {
            self.told = Some(trouble);
        }
        sleep(self.pause).await;
        // Twice as much each time, and not the same to everybody.
        let longest = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.pause = longest.mul_f64(0.75 + fastrand::f64() / 4.0);
        Ok(())
    }
}
