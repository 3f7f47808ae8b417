//! The number of replicas that have to acknowledge a lock, and the timeout.

use std::time::Duration;

use crate::value::error::LockError;
use crate::value::url::duration;

/// Default timeout for replicas.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Longest timeout for replicas.
const TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);

/// The number of replicas that have to acknowledge a lock, and the timeout for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicaAcks {
    pub(crate) acks: u32,
    pub(crate) timeout: Duration,
}

impl ReplicaAcks {
    pub(crate) fn new(acks: u32, timeout: Duration) -> Result<Self, LockError> {
        if acks == 0 {
            return Err(LockError::invalid_url(
                "`replicated` needs at least one replica: leave it out, or give their number",
            ));
        }
        Ok(Self { acks, timeout: timeout.min(TIMEOUT_MAX) })
    }

    /// Reads the settings of a URL.
    pub(crate) fn read(
        acks: Option<&str>,
        within: Option<&str>,
    ) -> Result<Option<Self>, LockError> {
        let timeout = match within {
            Some(within) => duration(within).ok_or_else(|| {
                LockError::invalid_url("`replicated_timeout` is not a duration such as `100ms`")
            })?,
            None => TIMEOUT,
        };
        let Some(acks) = acks else {
            return match within {
                Some(_) => Err(LockError::invalid_url("`replicated_timeout` needs `replicated`")),
                None => Ok(None),
            };
        };
        let acks = acks
            .parse()
            .map_err(|_| LockError::invalid_url("`replicated` is not a number of replicas"))?;
        Self::new(acks, timeout).map(Some)
    }

    /// The same, with a timeout of at most a quarter of the ttl.
    pub(crate) fn within(self, ttl: Duration) -> Self {
        Self { timeout: self.timeout.min(ttl / 4), ..self }
    }

    /// The timeout as WAIT takes it, where 0 would mean no limit.
    pub(crate) fn milliseconds(self) -> u64 {
        u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// The error for a store that cannot be replicated.
pub(crate) fn not_replicated(why: &str) -> LockError {
    LockError::invalid_url(format!("`replicated` is for a server with replicas, and {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_number_of_replicas_and_the_timeout() {
        let read =
            |acks, within| ReplicaAcks::read(acks, within).map_err(|error| error.to_string());
        let is = |acks, ms| Ok(Some(ReplicaAcks { acks, timeout: Duration::from_millis(ms) }));
        assert_eq!(read(None, None), Ok(None));
        assert_eq!(read(Some("2"), None), is(2, 500));
        assert_eq!(read(Some("1"), Some("100ms")), is(1, 100));
        assert_eq!(read(Some("1"), Some("2s")), is(1, 2_000));
        assert_eq!(read(Some("1"), Some("2m")), is(1, 120_000));
        for (acks, within) in [
            (Some("0"), None),
            (Some("-1"), None),
            (Some(""), None),
            (Some("1"), Some("100")),
            (Some("1"), Some("1y")),
            (Some("1"), Some("")),
            (None, Some("100ms")),
        ] {
            assert!(read(acks, within).is_err(), "{acks:?} {within:?}");
        }
    }

    #[test]
    fn waiting_for_replicas_takes_a_quarter_of_a_lease_at_most() {
        let replicated = ReplicaAcks { acks: 1, timeout: TIMEOUT };
        assert_eq!(replicated.within(Duration::from_secs(30)).milliseconds(), 500);
        assert_eq!(replicated.within(Duration::from_millis(400)).milliseconds(), 100);
        assert_eq!(ReplicaAcks { acks: 1, timeout: Duration::ZERO }.milliseconds(), 1);
    }
}
