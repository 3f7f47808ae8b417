//! The URL of a Redlock, one for all nodes.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::store::redlock::rules::Rules;
use crate::value::duration::duration;
use crate::value::error::LockError;
use crate::value::limits::{TTL_MAX, TTL_MIN};
use crate::value::url::Url;

/// The scheme, and the scheme of each node.
const PLAIN: (&str, &str) = ("redlock", "redis");
const ENCRYPTED: (&str, &str) = ("redlocks", "rediss");
const FORM: &str =
    "it is not of the form `redlock://[user:password@]host:port,host:port,host:port[/db]`";

/// The parts of the URL.
#[derive(Default)]
pub(crate) struct RedlockUrl<'a> {
    pub(crate) nodes: Vec<Url<'a>>,
    durable: bool,
    longest_ttl: Option<Duration>,
    node_timeout: Option<Duration>,
}

impl<'a> RedlockUrl<'a> {
    /// Reads `redlock://[user:password@]host[:port],…[/db][?setting&setting=value]`, or the same
    /// with `redlocks`; `None` for another scheme.
    pub(crate) fn read(url: &Url<'a>) -> Option<Result<Self, LockError>> {
        let kind = [PLAIN, ENCRYPTED].into_iter().find(|(known, _)| *known == url.scheme)?;
        Some(Self::of(kind, url))
    }

    fn of((scheme, of_each): (&str, &'static str), url: &Url<'a>) -> Result<Self, LockError> {
        let (mut this, mut passed_on) = (Self::default(), Vec::new());
        for setting in &url.settings {
            let (name, value) = (setting.name, setting.value());
            match name {
                "durable" if setting.value.is_none() => this.durable = true,
                "durable" => return Err(invalid("`durable` is written without a value")),
                "longest_ttl" => this.longest_ttl = Some(time(name, value, TTL_MIN..=TTL_MAX)?),
                "node_timeout" => {
                    let times = Duration::from_millis(1)..=TTL_MAX;
                    this.node_timeout = Some(time(name, value, times)?);
                }
                "cacert" | "cert" | "key" if scheme == ENCRYPTED.0 => passed_on.push(*setting),
                _ if url.may_be_cut => return Err(url.has_no(*setting)),
                // The URL of a node refuses those that a node cannot have.
                "replicated" | "replicated_timeout" | "fence_retention" => {
                    passed_on.push(*setting);
                }
                _ => return Err(url.has_no(*setting)),
            }
        }
        if url.hosts.split(',').any(str::is_empty) {
            return Err(invalid(FORM));
        }
        let node = |host| url.of_one(of_each, host, passed_on.clone());
        this.nodes = url.hosts.split(',').map(node).collect();
        Ok(this)
    }

    /// The settings of the nodes: those of the URL take precedence over `rules`.
    pub(crate) fn rules(&self, rules: Rules) -> Rules {
        Rules {
            longest_ttl: self.longest_ttl.unwrap_or(rules.longest_ttl),
            durable: self.durable || rules.durable,
            node: self.node_timeout.unwrap_or(rules.node),
            ..rules
        }
    }
}

fn time(name: &str, value: &str, times: RangeInclusive<Duration>) -> Result<Duration, LockError> {
    duration(value).filter(|time| times.contains(time)).ok_or_else(|| {
        let (shortest, longest) = times.into_inner();
        let hours = longest.as_secs() / 3_600;
        invalid(format!(
            "`{name}` is no time from {shortest:?} to {hours}h, such as `50ms` or `10m`"
        ))
    })
}

fn invalid(detail: impl Into<String>) -> LockError {
    LockError::InvalidUrl { detail: detail.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::url::Setting;

    fn read(url: &str) -> RedlockUrl<'_> {
        RedlockUrl::read(&Url::parse(url).expect(url)).expect("its scheme").expect(url)
    }

    #[test]
    fn it_names_all_nodes() {
        assert!(RedlockUrl::read(&Url::parse("redis://a").expect("a URL")).is_none());
        let nodes = |url: &'static str| -> Vec<_> {
            let node = |node: Url<'static>| {
                let settings: Vec<_> = node.settings.iter().map(Setting::text).collect();
                (node.scheme, node.login, node.hosts, node.path, settings.join("&"))
            };
            read(url).nodes.into_iter().map(node).collect()
        };
        let node = |host| ("redis", Some("u:p"), host, Some("4"), String::new());
        assert_eq!(nodes("redlock://u:p@a:1,b,[::1]:3/4"), ["a:1", "b", "[::1]:3"].map(node));
        let node = |host| ("rediss", None, host, None, "cacert=x&key=y".to_owned());
        let url = "redlocks://a,b,c?cacert=x&durable&key=y";
        assert_eq!(nodes(url), ["a", "b", "c"].map(node));
    }

    #[test]
    fn its_settings_take_precedence_over_the_builders() {
        let second = Duration::from_secs(1);
        let (durable, fence_retention) = (false, 9 * second);
        let builder = Rules { longest_ttl: second, durable, node: second, fence_retention };
        let rules = |settings| {
            let url = format!("redlock://a,b,c{settings}");
            read(&url).rules(builder)
        };
        assert_eq!(rules(""), builder);
        assert_eq!(rules("/1?durable"), Rules { durable: true, ..builder });
        assert_eq!(
            rules("?longest_ttl=10m&node_timeout=100ms"),
            Rules { longest_ttl: second * 600, node: second / 10, ..builder }
        );
        assert!(read("redlock://a,b,c").rules(Rules { durable: true, ..builder }).durable);
    }

    #[test]
    fn an_error_names_the_mistake_and_no_password() {
        for (rest, why) in [
            ("", "of the form"),
            ("a,,b", "of the form"),
            (":hunter2@a,b,", "of the form"),
            ("a,b,c?hunter2=1", "a setting that `redlock://` does not have"),
            ("a,b,c?quick", "`quick` is no setting of `redlock://`"),
            ("a,b,c?cacert=hunter2", "`cacert` is no setting of `redlock://`"),
            ("a,b,c?durable=no", "without a value"),
            ("a,b,c?longest_ttl", "`longest_ttl` is no time from 50ms to 24h"),
            ("a,b,c?longest_ttl=10", "`10m`"),
            ("a,b,c?longest_ttl=1ms", "`longest_ttl` is no time"),
            ("a,b,c?longest_ttl=25h", "`longest_ttl` is no time"),
            ("a,b,c?longest_ttl=99999999999999999999h", "`longest_ttl` is no time"),
            ("a,b,c?node_timeout=0ms", "`node_timeout` is no time from 1ms to 24h"),
            ("a,b,c?node_timeout=-1s", "`node_timeout` is no time"),
            (":hun?ter2@a,b,c", "`%3F`"),
            (":durable?durable@a,b,c", "`%3F`"),
        ] {
            let url = format!("redlock://{rest}");
            let read = RedlockUrl::read(&Url::parse(&url).expect(rest)).expect("its scheme");
            let error = read.err().expect(rest).to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{rest}: {error}");
        }
    }
}
