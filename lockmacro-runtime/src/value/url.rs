//! The URLs of servers, in their parts, and the values in them. Nothing else takes a URL apart.

use std::time::Duration;

use crate::value::error::LockError;
use crate::value::fence::{RETENTION_MAX, RETENTION_MIN};

/// Names the form of a URL in error texts, instead of the URL, which may have a password in it.
pub(crate) const FORM: &str = "it is not of the form `redis://user:password@host:port/db`";
/// What a URL may begin with.
pub(crate) const SCHEMES: &str = "it begins with none of `memory://`, `redis://`, `rediss://`, \
    `redis+unix://`, `redis-sentinel://`, `redis-cluster://`, `redlock://` and `postgres://`; locks \
    in etcd have a package of their own, `lockmacro-etcd`";
/// For a user or password that a `?` has cut in two.
const UNESCAPED: &str = "it has a `?` before its last `@`, which is written `%3F` in a password";

/// The parts of a URL, as they are written.
#[derive(Clone)]
pub(crate) struct Url<'a> {
    pub(crate) scheme: &'a str,
    /// User and password, where there is an `@`.
    pub(crate) login: Option<&'a str>,
    /// Hosts with their ports, separated by commas; empty for a socket.
    pub(crate) hosts: &'a str,
    /// The part after the first slash.
    pub(crate) path: Option<&'a str>,
    /// Each as `name=value` or `name`: see [`named`].
    pub(crate) settings: Vec<&'a str>,
    /// The settings may be the rest of a password with a `?` in it.
    pub(crate) may_be_cut: bool,
}

impl<'a> Url<'a> {
    /// Takes `scheme://[user:password@]hosts[/path][?name=value&name]` apart.
    pub(crate) fn parse(url: &'a str) -> Result<Self, LockError> {
        if url.contains('#') {
            let why = "it has a `#` in it, which is written `%23` in a password";
            return Err(LockError::invalid_url(why));
        }
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| LockError::invalid_url(SCHEMES))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = place.split_once('/');
        let (authority, path) = path.map_or((place, None), |(before, path)| (before, Some(path)));
        let login = authority.rsplit_once('@');
        let (login, hosts) = login.map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let settings = query.split('&').filter(|setting| !setting.is_empty()).collect();
        Ok(Self { scheme, login, hosts, path, settings, may_be_cut: query.contains('@') })
    }

    /// The URL of one server with this scheme and host and these settings, of a URL of several.
    pub(crate) fn of_one(&self, scheme: &'a str, host: &'a str, settings: Vec<&'a str>) -> Self {
        Self { scheme, hosts: host, settings, ..self.clone() }
    }

    /// Whether this is the scheme and nothing else.
    pub(crate) fn is_only(&self, scheme: &str) -> bool {
        let Self { login, hosts, path, settings, .. } = self;
        self.scheme == scheme
            && (login.is_none() && hosts.is_empty() && path.is_none() && settings.is_empty())
    }

    /// The error for an unknown setting. Its name is shown only if it cannot be a part of a
    /// password.
    pub(crate) fn refuse_unknown(&self, setting: &str) -> LockError {
        let (name, _) = named(setting);
        let scheme = self.scheme;
        if self.may_be_cut {
            return LockError::invalid_url(UNESCAPED);
        }
        if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            return LockError::invalid_url(format!("`{name}` is no setting of `{scheme}://`"));
        }
        LockError::invalid_url(format!("it has a setting that `{scheme}://` does not have"))
    }
}

/// The name of a setting, and its value; empty where there is none.
pub(crate) fn named(setting: &str) -> (&str, &str) {
    setting.split_once('=').unwrap_or((setting, ""))
}

/// A percent-decoded value.
pub(crate) fn decoded(value: &str) -> String {
    percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned()
}

/// Parses a duration such as `100ms`, `2s`, `1m30s` or `7d`: numbers with units, in whole
/// milliseconds. `None` for anything else, also for fractions, and for months and years, which have
/// no fixed length.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut units = text.split(|c: char| !c.is_alphabetic());
    if units.any(|unit| matches!(unit, "M" | "month" | "months" | "y" | "yr" | "year" | "years"))
        || text.contains('.')
    {
        return None;
    }
    let time = humantime::parse_duration(text).ok()?;
    time.subsec_nanos().is_multiple_of(1_000_000).then_some(time)
}

/// Parses how long a key's last fence is kept.
pub(crate) fn retention(value: &str) -> Result<Duration, LockError> {
    let times = RETENTION_MIN..=RETENTION_MAX;
    duration(value).filter(|time| times.contains(time)).ok_or_else(|| {
        LockError::invalid("fence_retention", "write a time from 1d to 3650d, as `30d`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_nothing_is_decoded() {
        let url = "redis-cluster://shop:p%40ss@one:7000,two,[::1]:7002/0?turn=20ms&durable&a=";
        let url = Url::parse(url).unwrap();
        assert_eq!((url.scheme, url.login), ("redis-cluster", Some("shop:p%40ss")));
        assert_eq!((url.hosts, url.path), ("one:7000,two,[::1]:7002", Some("0")));
        assert_eq!(url.settings, ["turn=20ms", "durable", "a="]);
        assert_eq!((named("turn=20ms"), named("durable")), (("turn", "20ms"), ("durable", "")));
        let socket = Url::parse("redis+unix:///run/a@b?db=3").unwrap();
        assert_eq!((socket.login, socket.hosts, socket.path), (None, "", Some("run/a@b")));
        assert!(Url::parse("memory://").unwrap().is_only("memory"));
        for url in ["memory:///", "memory://x", "memory://?x", "redis://"] {
            assert!(!Url::parse(url).unwrap().is_only("memory"), "{url}");
        }
    }

    #[test]
    fn an_error_shows_no_part_of_a_password() {
        for url in [":hunter2@localhost", "redis://:hunter2#@localhost"] {
            let error = Url::parse(url).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| !error.contains("hunter2")), "{url}");
        }
        for (url, why) in [
            ("redis://:pa?hunter2@localhost", "%3F"),
            ("redis://localhost?hunter2=1", "it has a setting that `redis://` does not have"),
            ("redis-cluster://localhost?quick", "`quick` is no setting of `redis-cluster://`"),
        ] {
            let url = Url::parse(url).unwrap();
            let error = url.refuse_unknown(url.settings[0]).to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_time_is_written_as_in_the_attribute() {
        let seconds = Duration::from_secs;
        for (text, time) in [
            ("100ms", Duration::from_millis(100)),
            ("2s", seconds(2)),
            ("1m30s", seconds(90)),
            ("1h 5min", seconds(65 * 60)),
            ("30d", seconds(30 * 24 * 60 * 60)),
            ("0s", Duration::ZERO),
        ] {
            assert_eq!(duration(text), Some(time), "{text}");
        }
    }

    #[test]
    fn what_has_no_unit_or_no_fixed_length_is_no_time() {
        for text in
            ["", "30", "s", "-1s", "1.5s", "1M", "2months", "1y", "5us", "99999999999999999999h"]
        {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
