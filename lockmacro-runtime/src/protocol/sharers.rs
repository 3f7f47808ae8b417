//! The holders that share a token: the last of them to end releases it.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::value::time::{LastMoment, Moment};

/// The holders of one token.
#[derive(Debug, Default)]
pub(crate) struct Sharers {
    /// Number of holders that have not ended.
    count: AtomicUsize,
    /// Until when the holders that have ended may have extended the lock.
    kept_until: LastMoment,
}

impl Sharers {
    /// Adds a holder.
    pub(crate) fn join(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a holder, which may have extended the lock until `kept_until`, unless it is the last
    /// one. That one gets the latest such time of all, and has to release the token.
    pub(crate) fn leave(&self, kept_until: Moment) -> Result<(), Moment> {
        self.kept_until.note(kept_until);
        let others = |count: usize| count.checked_sub(1).filter(|others| *others > 0);
        let update = self.count.fetch_update(Ordering::AcqRel, Ordering::Acquire, others);
        update.map(drop).map_err(|_| self.kept_until.get())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_holder_releases_what_any_has_extended() {
        let (sharers, at) = (Sharers::default(), |secs| Moment::at(Duration::from_secs(secs)));
        (0..3).for_each(|_| sharers.join());
        assert_eq!(sharers.leave(at(30)), Ok(()));
        assert_eq!(sharers.leave(at(90)), Ok(()));
        assert_eq!(sharers.leave(at(60)), Err(at(90)));
        assert_eq!(sharers.leave(at(60)), Err(at(90)), "however often it is asked");
    }
}
