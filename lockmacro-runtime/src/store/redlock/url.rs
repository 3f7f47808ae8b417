//! The URL of a Redlock, one for all nodes.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::store::redis::client::url::{UNESCAPED, no_setting};
use crate::store::redlock::rules::Rules;
use crate::value::duration::duration;
use crate::value::error::LockError;
use crate::value::limits::{TTL_MAX, TTL_MIN};

/// The scheme, and the scheme of each node.
const PLAIN: (&str, &str) = ("redlock", "redis");
const ENCRYPTED: (&str, &str) = ("redlocks", "rediss");
const FORM: &str =
    "it is not of the form `redlock://[user:password@]host:port,host:port,host:port[/db]`";

/// The parts of the URL.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RedlockUrl {
    pub(crate) urls: Vec<String>,
    durable: bool,
    longest_ttl: Option<Duration>,
    node_timeout: Option<Duration>,
}

impl RedlockUrl {
    /// Reads `redlock://[user:password@]host[:port],…[/db][?setting&setting=value]`, or the same
    /// with `redlocks`; `None` for another scheme.
    pub(crate) fn read(url: &str) -> Option<Result<Self, LockError>> {
        let (scheme, rest) = url.split_once("://")?;
        let kind = [PLAIN, ENCRYPTED].into_iter().find(|(known, _)| *known == scheme)?;
        Some(Self::of(kind, rest))
    }

    fn of((scheme, of_each): (&str, &str), rest: &str) -> Result<Self, LockError> {
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut this, mut passed_on) = (Self::default(), Vec::new());
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            match name {
                "durable" if setting == name => this.durable = true,
                "durable" => return Err(invalid("`durable` is written without a value")),
                "longest_ttl" => this.longest_ttl = Some(time(name, value, TTL_MIN..=TTL_MAX)?),
                "node_timeout" => {
                    let times = Duration::from_millis(1)..=TTL_MAX;
                    this.node_timeout = Some(time(name, value, times)?);
                }
                "cacert" | "cert" | "key" if scheme == ENCRYPTED.0 => passed_on.push(setting),
                _ if query.contains('@') => return Err(invalid(UNESCAPED)),
                // The URL of a node refuses those that a node cannot have.
                "protocol" | "replicated" | "replicated_timeout" | "fence_retention" => {
                    passed_on.push(setting);
                }
                _ => return Err(no_setting(name, scheme)),
            }
        }
        let (hosts, db) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) = match hosts.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), hosts),
        };
        if hosts.split(',').any(str::is_empty) {
            return Err(invalid(FORM));
        }
        let query = passed_on.join("&");
        let url = |host| format!("{of_each}://{login}{host}/{db}?{query}");
        this.urls = hosts.split(',').map(url).collect();
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

    fn read(url: &str) -> RedlockUrl {
        RedlockUrl::read(url).expect("its scheme").expect(url)
    }

    #[test]
    fn it_names_all_nodes() {
        assert_eq!(RedlockUrl::read("redis://a"), None);
        let urls = ["redis://u:p@a:1/4?", "redis://u:p@b/4?", "redis://u:p@[::1]:3/4?"];
        assert_eq!(read("redlock://u:p@a:1,b,[::1]:3/4").urls, urls);
        let urls = ["a", "b", "c"].map(|host| format!("rediss://{host}/?cacert=x&protocol=3"));
        assert_eq!(read("redlocks://a,b,c?cacert=x&durable&protocol=3").urls, urls);
    }

    #[test]
    fn its_settings_take_precedence_over_the_builders() {
        let second = Duration::from_secs(1);
        let (durable, fence_retention) = (false, 9 * second);
        let builder = Rules { longest_ttl: second, durable, node: second, fence_retention };
        let rules = |settings| read(&format!("redlock://a,b,c{settings}")).rules(builder);
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
            ("a,b,c?hunter2=1", "what is no setting of `redlock://`"),
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
            let error = RedlockUrl::read(&format!("redlock://{rest}")).expect("its scheme");
            let error = error.expect_err(rest).to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{rest}: {error}");
        }
    }
}
