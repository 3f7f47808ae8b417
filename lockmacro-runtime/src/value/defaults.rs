//! A manager's defaults for its locks.

use std::borrow::Cow;
use std::time::Duration;

use crate::value::error::LockError;
use crate::value::limits::{TTL_DEFAULT, TTL_MAX, TTL_MIN};
use crate::value::url::{Url, duration, named};

/// Longest prefix of keys, in bytes.
const PREFIX_MAX: usize = 256;
/// Longest turn.
const TURN_MAX: Duration = Duration::from_secs(1);
/// Shortest and longest wait that has an end, for callers that wait.
pub(crate) const WAIT_MIN: Duration = Duration::from_millis(1);
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings of locks that set nothing else.
#[derive(Debug, Clone, Default)]
pub(crate) struct Defaults {
    ttl: Option<Duration>,
    /// With zero, locks do not wait.
    pub(crate) wait: Duration,
    pub(crate) prefix: Box<str>,
    /// `None` where the length depends on the round trip.
    pub(crate) turn: Option<Duration>,
    retry_after: Option<(Duration, Duration)>,
    /// Whether a call also asks a server that is known to be down.
    pub(crate) asks_down: bool,
    /// The error of the first setting with an invalid value.
    fault: Option<Box<LockError>>,
}

impl Defaults {
    /// The shortest and the longest `retry_after` of a busy error.
    pub(crate) fn retry_after(&self) -> (Duration, Duration) {
        self.retry_after.unwrap_or((Duration::from_secs(1), Duration::from_secs(30)))
    }

    /// The default ttl, if one was set.
    pub(crate) fn given_ttl(&self) -> Option<Duration> {
        self.ttl
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl.unwrap_or(TTL_DEFAULT)
    }

    /// An error if a setting has an invalid value.
    pub(crate) fn usable(&self) -> Result<(), LockError> {
        self.fault.as_deref().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// The same for a manager with a `longest_ttl`.
    pub(crate) fn usable_up_to(&self, longest: Duration) -> Result<(), LockError> {
        self.usable()?;
        if self.ttl.is_some_and(|ttl| ttl > longest) {
            let detail = format!("it is longer than the `longest_ttl` of {longest:?}: raise that");
            return Err(LockError::invalid("default_ttl", detail));
        }
        Ok(())
    }

    /// Takes the defaults out of a URL.
    pub(crate) fn take_from(&mut self, url: &mut Url<'_>) -> Result<(), LockError> {
        if !url.may_be_cut {
            url.settings.retain(|setting| !self.take(setting));
        }
        self.usable()
    }

    /// Sets a default by the setting of a URL; returns whether it is one.
    fn take(&mut self, setting: &str) -> bool {
        let (name, value) = named(setting);
        match name {
            "default_ttl" => self.set_ttl(duration(value)),
            "default_wait" => self.set_wait(duration(value)),
            "turn" => self.set_turn(duration(value)),
            "fail_fast" if value == "yes" || value == "no" => self.asks_down = value == "no",
            "fail_fast" => self.refuse("fail_fast", "write `yes` or `no`"),
            "key_prefix" => {
                let decoded = percent_encoding::percent_decode_str(value).decode_utf8();
                self.set_prefix(decoded.map_or_else(|_| "{".to_owned(), Cow::into_owned));
            }
            _ => return false,
        }
        true
    }

    pub(crate) fn set_ttl(&mut self, ttl: Option<Duration>) {
        match ttl.and_then(|ttl| check_ttl(ttl).ok()) {
            Some(ttl) => self.ttl = Some(ttl),
            None => self.refuse("default_ttl", "write a time from 50ms to 24h, such as `30s`"),
        }
    }

    pub(crate) fn set_wait(&mut self, wait: Option<Duration>) {
        match wait.filter(|wait| wait.is_zero() || (WAIT_MIN..=WAIT_MAX).contains(wait)) {
            Some(wait) => self.wait = wait,
            None => self.refuse(
                "default_wait",
                "write a time from 1ms to 24h, such as `2s`; for a wait without an end, set `wait` \
                 at the lock",
            ),
        }
    }

    pub(crate) fn set_turn(&mut self, turn: Option<Duration>) {
        match turn.filter(|turn| *turn <= TURN_MAX) {
            Some(turn) => self.turn = Some(turn),
            None => self.refuse("turn", "write a time from 0s to 1s, such as `20ms`"),
        }
    }

    pub(crate) fn set_prefix(&mut self, prefix: String) {
        let hint = if prefix.contains(['{', '}']) {
            "write it without braces, which are the hash tags of Redis Cluster, in UTF-8"
        } else if prefix.starts_with("lm1:") {
            "write one that does not start with `lm1:`, which is reserved"
        } else if prefix.len() > PREFIX_MAX {
            &format!("write one of at most {PREFIX_MAX} bytes")
        } else {
            self.prefix = prefix.into();
            return;
        };
        self.refuse("key_prefix", hint);
    }

    pub(crate) fn set_retry_after(&mut self, least: Duration, most: Duration) {
        if least <= most {
            self.retry_after = Some((least, most));
        } else {
            self.refuse("retry_after", "write the shorter time first");
        }
    }

    /// Notes that a setting has an invalid value, for [`usable`](Defaults::usable).
    pub(crate) fn refuse(&mut self, setting: &'static str, hint: &str) {
        self.fault.get_or_insert_with(|| Box::new(LockError::invalid(setting, hint)));
    }
}

/// Rounds a ttl down to whole milliseconds, which the server counts; an error if it is out of
/// bounds.
pub(crate) fn check_ttl(ttl: Duration) -> Result<Duration, LockError> {
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        Ok(ttl - Duration::from_nanos(u64::from(ttl.subsec_nanos() % 1_000_000)))
    } else {
        Err(unusable_ttl(ttl, TTL_MAX))
    }
}

/// Checks the wait of a lock. Zero does not wait, and [`Duration::MAX`] has no end.
pub(crate) fn check_wait(wait: Duration) -> Result<Duration, LockError> {
    if wait.is_zero() || wait == Duration::MAX || (WAIT_MIN..=WAIT_MAX).contains(&wait) {
        return Ok(wait);
    }
    let detail = format!(
        "it is {wait:?}: choose one between {WAIT_MIN:?} and {WAIT_MAX:?}, zero for none, or call \
         `wait_forever`"
    );
    Err(LockError::invalid("wait", detail))
}

/// The error of a ttl that is out of bounds.
pub(crate) fn unusable_ttl(ttl: Duration, longest: Duration) -> LockError {
    LockError::invalid(
        "ttl",
        format!("it is {ttl:?}: choose one between {TTL_MIN:?} and {longest:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_whole_milliseconds_within_its_bounds() {
        assert_eq!(check_ttl(Duration::from_micros(50_999)), Ok(TTL_MIN));
        assert_eq!(check_ttl(TTL_MAX), Ok(TTL_MAX));
        let over = TTL_MAX + Duration::from_nanos(1);
        for ttl in [Duration::ZERO, Duration::from_micros(49_999), over] {
            assert_eq!(check_ttl(ttl), Err(unusable_ttl(ttl, TTL_MAX)));
        }
    }

    /// The defaults of a URL, and its other settings.
    fn read(url: &str) -> Result<(Vec<String>, Defaults), String> {
        let mut url = Url::parse(url).expect(url);
        let mut defaults = Defaults::default();
        defaults.take_from(&mut url).map_err(|error| error.to_string())?;
        Ok((url.settings.iter().map(|setting| (*setting).to_owned()).collect(), defaults))
    }

    #[test]
    fn defaults_are_read_from_a_url_and_other_settings_are_kept() {
        let url = "redis://host/3?default_ttl=1m&replicated=1&default_wait=2s&key_prefix=shop%3A";
        let (others, defaults) = read(url).unwrap();
        assert_eq!(others, ["replicated=1"]);
        let minute = Duration::from_secs(60);
        assert_eq!((defaults.ttl(), defaults.wait), (minute, minute / 30));
        assert_eq!(&*defaults.prefix, "shop:");
        assert_eq!(read("redis://host?turn=0s").unwrap().1.turn, Some(Duration::ZERO));
        assert_eq!(read("memory://?turn=1s").unwrap().1.turn, Some(Duration::from_secs(1)));
        assert_eq!(read("memory://?key_prefix=a:").unwrap().0, [""; 0]);
        assert_eq!(read("memory://").unwrap().1.ttl(), TTL_DEFAULT);
    }

    #[test]
    fn the_rest_of_a_password_is_no_setting() {
        let (others, defaults) = read("redis://:pa?key_prefix=x@host").unwrap();
        assert_eq!((others, &*defaults.prefix), (vec!["key_prefix=x@host".to_owned()], ""));
    }

    #[test]
    fn a_bad_value_names_the_setting_and_the_mend() {
        for (setting, hint) in [
            ("default_ttl=1ms", "50ms"),
            ("default_ttl=25h", "24h"),
            ("default_ttl=30", "`30s`"),
            ("default_ttl", "`30s`"),
            ("default_wait=forever", "`2s`"),
            ("default_wait=25h", "24h"),
            ("turn=1001ms", "1s"),
            ("turn=-1ms", "0s"),
            ("turn=20", "`20ms`"),
            ("fail_fast", "`no`"),
            ("fail_fast=off", "`no`"),
            ("key_prefix={shop}:", "without braces"),
            ("key_prefix=%7Bshop", "without braces"),
            ("key_prefix=%FF", "UTF-8"),
            ("key_prefix=lm1:x", "reserved"),
            (&format!("key_prefix={}", "x".repeat(257)), "256 bytes"),
        ] {
            let error = read(&format!("redis://host?{setting}")).unwrap_err();
            let name = setting.split('=').next().unwrap();
            assert!(error.starts_with(&format!("`{name}` ")) && error.contains(hint), "{error}");
        }
    }
}
