//! The head of the lines of several keys, which asks the store for all of them.

use std::mem;
use std::task::Context;
use std::time::Duration;

use crate::engine::acquisition::Refusal;
use crate::engine::line::Place;
use crate::engine::timer::Timer;
use crate::value::limits::FOR_EVER;
use crate::value::time::Moment;

/// Interval at which the caller shows its lines that it is polled. They go on without a caller that
/// is not polled for the confirm window.
const POLLED: Duration = Duration::from_secs(1);

/// The lines whose head the caller is. Dropping it lets the next caller of each line ask the store.
#[derive(Default)]
pub(crate) struct HeadOfLines {
    pub(crate) places: Vec<Place>,
    timer: Option<Timer>,
}

impl HeadOfLines {
    /// Shows the lines that the caller is polled, and has it polled again in time.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        while !self.places.is_empty() {
            let timer = self.timer.get_or_insert_with(|| Timer::new(POLLED));
            if timer.poll(cx).is_pending() {
                return;
            }
            self.timer = None;
            self.note_polled(Moment::now());
        }
    }

    /// The caller blocks its thread, so it need not be polled.
    pub(crate) fn block(&self) {
        self.note_polled(Moment::now().after(FOR_EVER));
    }

    fn note_polled(&self, now: Moment) {
        self.places.iter().for_each(|place| place.asker_polled(now));
    }

    /// The caller has the locks.
    pub(crate) fn granted(mut self) -> Vec<Place> {
        mem::take(&mut self.places)
    }

    /// The locks were not granted.
    pub(crate) fn refused(mut self, refusal: &Refusal) {
        Place::tell(&mem::take(&mut self.places), |place| match refusal {
            // Without an owner, no server has answered that another holder has the lock.
            Refusal::Contended { key, holder, .. }
                if place.line.key == *key && holder.owner.is_some() =>
            {
                place.refused(holder, None);
            }
            _ => place.failed(None),
        });
    }
}

impl Drop for HeadOfLines {
    fn drop(&mut self) {
        Place::tell(&self.places, |place| place.failed(None));
    }
}
