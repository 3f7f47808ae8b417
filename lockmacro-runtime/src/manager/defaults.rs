//! What holds for every lock of a manager that says nothing else.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
#[cfg(feature = "defer")]
use std::sync::Arc;
use std::time::Duration;

use crate::manager::builder::LockManagerBuilder;
use crate::value::duration::duration;
use crate::value::error::LockError;
use crate::value::limits::{TTL_DEFAULT, check_ttl};

/// Longest prefix, in bytes: most of a key is the lock's own.
const PREFIX_MAX: usize = 256;
/// Longest wait that a lock has without asking for it.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, Default)]
pub(crate) struct Defaults {
    ttl: Option<Duration>,
    wait: Duration,
    prefix: Box<str>,
    retry_after: Option<(Duration, Duration)>,
    /// The first setting with a value that it cannot have.
    fault: Option<Box<LockError>>,
}

impl LockManagerBuilder {
    /// Sets the lease of a lock that names no [`ttl`](crate::Lock::ttl), 30 s by default. It is
    /// renewed while the lock is held, so it is how long a lock outlives a process that was killed.
    ///
    /// 50 ms to 24 h in whole milliseconds, and at most the
    /// [`longest_ttl`](LockManagerBuilder::longest_ttl) of a Redlock; any other is
    /// [`LockError::InvalidSetting`] when the manager is connected. A URL says it by
    /// `?default_ttl=1m`, and goes before this. The attribute does not know this setting: it checks
    /// a `max_hold` or `min_hold` that stands without a `ttl` against 30 s.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let builder = LockManager::builder().default_ttl(Duration::from_secs(60));
    /// let locks = builder.connect("memory://").await?;
    /// let guard = Lock::new("report").manager(&locks).acquire().await?;
    /// assert!(guard.remaining() > Duration::from_secs(50));
    /// # guard.release().await }
    /// ```
    pub fn default_ttl(mut self, ttl: Duration) -> Self {
        self.defaults.set_ttl(Some(ttl));
        self
    }

    /// Sets how long a lock that names no [`wait`](crate::Lock::wait) waits in line, not at all by
    /// default. At most 24 h; a longer one is [`LockError::InvalidSetting`] when the manager is
    /// connected. A URL says it by `?default_wait=2s`, and goes before this.
    ///
    /// A lock that is to be asked for once all the same says so: `wait = never`, or
    /// `.wait(Duration::ZERO)`. Under `on_busy = skip` this default does not apply: a scheduled job
    /// that another machine does right now is to be left out, and not to be done once more after
    /// it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let builder = LockManager::builder().default_wait(Duration::from_millis(20));
    /// let locks = builder.memory();
    /// let held = Lock::new("report").manager(&locks).acquire().await?;
    /// let waited = Lock::new("report").manager(&locks).acquire().await;
    /// assert!(matches!(waited, Err(LockError::TimedOut { .. })));
    /// let asked = Lock::new("report").wait(Duration::ZERO).manager(&locks).acquire().await;
    /// assert!(matches!(asked, Err(LockError::Busy { .. })));
    /// # held.release().await }
    /// ```
    pub fn default_wait(mut self, wait: Duration) -> Self {
        self.defaults.set_wait(Some(wait));
        self
    }

    /// Puts a prefix such as `shop:` before every key that this manager locks, so that several
    /// services share a server.
    ///
    /// It is part of the key everywhere: on the server, in errors, logs and the template of
    /// metrics, in [`LockGuard::key`](crate::LockGuard::key), and before the names of deferred
    /// functions. Code names keys without it, also in [`LockGuard::of`](crate::LockGuard::of);
    /// whoever looks from outside (the tool `lockmacro`, `LockManager::held`) names the whole key.
    /// At most 256 bytes, without `{` and `}`, which would move every key to one slot of a cluster,
    /// and not beginning with `lm1:`; any other is [`LockError::InvalidSetting`] when the manager
    /// is connected. The key's limit of 1,024 bytes counts it. A URL says it by
    /// `?key_prefix=shop:`, and goes before this.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let locks = LockManager::builder().key_prefix("shop:").connect("memory://").await?;
    /// let guard = Lock::new("order:42").manager(&locks).acquire().await?;
    /// assert_eq!(guard.key().as_str(), "shop:order:42");
    /// # guard.release().await }
    /// ```
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.defaults.set_prefix(prefix.into());
        self
    }
}

impl LockManagerBuilder {
    /// Sets the bounds of [`LockError::retry_after`], 1 s to 30 s by default: no caller is told to
    /// ask again sooner or later than that.
    ///
    /// A range that ends before it begins is [`LockError::InvalidSetting`] when the manager is
    /// connected.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use lockmacro_runtime::{Lock, LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// let at_most = Duration::from_secs(2);
    /// let locks = LockManager::builder().retry_after(Duration::ZERO..=at_most).memory();
    /// let lock = Lock::new("report").manager(&locks);
    /// let held = lock.clone().acquire().await?;
    /// let busy = lock.acquire().await.expect_err("it is held");
    /// assert_eq!(busy.retry_after(), Some(at_most));
    /// # held.release().await }
    /// ```
    pub fn retry_after(mut self, bounds: RangeInclusive<Duration>) -> Self {
        let (least, most) = bounds.into_inner();
        if least <= most {
            self.defaults.retry_after = Some((least, most));
        } else {
            self.defaults.refuse("retry_after", "write the shorter time first");
        }
        self
    }
}

impl Defaults {
    /// The shortest and the longest time after which to ask again.
    pub(crate) fn retry_after(&self) -> (Duration, Duration) {
        self.retry_after.unwrap_or((Duration::from_secs(1), Duration::from_secs(30)))
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl.unwrap_or(TTL_DEFAULT)
    }

    /// Zero is not to wait.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Under which name the calls of a function are kept: services that share a server do not run
    /// each other's.
    #[cfg(feature = "defer")]
    pub(crate) fn stored_as(&self, function: &Arc<str>) -> Arc<str> {
        match self.prefix() {
            "" => Arc::clone(function),
            prefix => [prefix, function].concat().into(),
        }
    }

    /// Tells of a setting that has a value which it cannot have.
    pub(crate) fn usable(&self) -> Result<(), LockError> {
        self.fault.as_deref().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// The same for a manager that gives no longer locks.
    pub(crate) fn usable_up_to(&self, longest: Duration) -> Result<(), LockError> {
        self.usable()?;
        if self.ttl.is_some_and(|ttl| ttl > longest) {
            let detail = format!("it is longer than the `longest_ttl` of {longest:?}: raise that");
            return Err(LockError::InvalidSetting { setting: "default_ttl", detail });
        }
        Ok(())
    }

    /// Takes the settings out of a URL, and gives what is left of it.
    pub(crate) fn take_from<'a>(&mut self, url: &'a str) -> Result<Cow<'a, str>, LockError> {
        let Some((place, query)) = url.split_once('?') else { return Ok(Cow::Borrowed(url)) };
        // All of this may be the rest of a password: who reads the URL refuses it.
        if query.contains(['@', '#']) {
            return Ok(Cow::Borrowed(url));
        }
        let mut others = Vec::new();
        for setting in query.split('&') {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            match name {
                "default_ttl" => self.set_ttl(duration(value)),
                "default_wait" => self.set_wait(duration(value)),
                "key_prefix" => {
                    let decoded = percent_encoding::percent_decode_str(value).decode_utf8();
                    self.set_prefix(decoded.map_or_else(|_| "{".to_owned(), Cow::into_owned));
                }
                _ => others.push(setting),
            }
        }
        self.usable()?;
        Ok(Cow::Owned(match others.join("&") {
            others if others.is_empty() => place.to_owned(),
            others => format!("{place}?{others}"),
        }))
    }

    fn set_ttl(&mut self, ttl: Option<Duration>) {
        match ttl.and_then(|ttl| check_ttl(ttl).ok()) {
            Some(ttl) => self.ttl = Some(ttl),
            None => self.refuse("default_ttl", "write a time from 50ms to 24h, such as `30s`"),
        }
    }

    fn set_wait(&mut self, wait: Option<Duration>) {
        match wait.filter(|wait| *wait <= WAIT_MAX) {
            Some(wait) => self.wait = wait,
            None => self.refuse(
                "default_wait",
                "write a time of up to 24h, such as `2s`; a lock that waits without an end says so \
                 itself",
            ),
        }
    }

    fn set_prefix(&mut self, prefix: String) {
        if prefix.contains(['{', '}']) {
            let mend =
                "write it without braces, which are the hash tags of Redis Cluster, in UTF-8";
            self.refuse("key_prefix", mend);
        } else if prefix.starts_with("lm1:") {
            self.refuse(
                "key_prefix",
                "write one that does not start with `lm1:`, which is reserved",
            );
        } else if prefix.len() > PREFIX_MAX {
            self.refuse("key_prefix", format_args!("write one of at most {PREFIX_MAX} bytes"));
        } else {
            self.prefix = prefix.into();
        }
    }

    fn refuse(&mut self, setting: &'static str, mend: impl fmt::Display) {
        let fault = LockError::InvalidSetting { setting, detail: mend.to_string() };
        self.fault.get_or_insert_with(|| Box::new(fault));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<(String, Defaults), String> {
        let mut defaults = Defaults::default();
        let rest = defaults.take_from(url).map_err(|error| error.to_string())?;
        Ok((rest.into_owned(), defaults))
    }

    #[test]
    fn a_url_says_them_and_keeps_its_other_settings() {
        let url = "redis://host/3?default_ttl=1m&protocol=3&default_wait=2s&key_prefix=shop%3A";
        let (rest, defaults) = read(url).unwrap();
        assert_eq!(rest, "redis://host/3?protocol=3");
        let minute = Duration::from_secs(60);
        assert_eq!((defaults.ttl(), defaults.wait()), (minute, minute / 30));
        assert_eq!(defaults.prefix(), "shop:");
        assert_eq!(read("memory://?key_prefix=a:").unwrap().0, "memory://");
        assert_eq!(read("memory://").unwrap().1.ttl(), TTL_DEFAULT);
    }

    #[test]
    fn the_rest_of_a_password_is_no_setting() {
        for url in ["redis://:pa?key_prefix=x@host", "redis://host?key_prefix=x#y"] {
            let (rest, defaults) = read(url).unwrap();
            assert_eq!((&*rest, defaults.prefix()), (url, ""));
        }
    }

    #[test]
    fn a_bad_value_names_the_setting_and_the_mend() {
        for (setting, mend) in [
            ("default_ttl=1ms", "50ms"),
            ("default_ttl=25h", "24h"),
            ("default_ttl=30", "`30s`"),
            ("default_ttl", "`30s`"),
            ("default_wait=forever", "`2s`"),
            ("default_wait=25h", "24h"),
            ("key_prefix={shop}:", "without braces"),
            ("key_prefix=%7Bshop", "without braces"),
            ("key_prefix=%FF", "UTF-8"),
            ("key_prefix=lm1:x", "reserved"),
            (&format!("key_prefix={}", "x".repeat(257)), "256 bytes"),
        ] {
            let error = read(&format!("redis://host?{setting}")).unwrap_err();
            let name = setting.split('=').next().unwrap();
            assert!(error.starts_with(&format!("`{name}` ")) && error.contains(mend), "{error}");
        }
    }
}
