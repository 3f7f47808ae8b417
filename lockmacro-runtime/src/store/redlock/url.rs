//! The URL of a Redlock, one for all nodes.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::store::redlock::rules::Rules;
use crate::value::error::LockError;
use crate::value::limits::{TTL_MAX, TTL_MIN};
use crate::value::url::{Url, duration, named};

/// The scheme, and the scheme of each node.
const PLAIN: (&str, &str) = ("redlock", "redis");
const ENCRYPTED: (&str, &str) = ("redlocks", "rediss");
const FORM: &str =
    "it is not of the form `redlock://[user:password@]host:port,host:port,host:port[/db]`";

/// Reads the nodes of `redlock://[user:password@]host[:port],…[/db][?setting&setting=value]`, or of
/// the same with `redlocks`; `None` for another scheme. The settings of the URL take precedence
/// over those of `rules`.
pub(crate) fn nodes<'a>(
    url: &Url<'a>,
    rules: &mut Rules,
) -> Option<Result<Vec<Url<'a>>, LockError>> {
    let (_, of_each) = [PLAIN, ENCRYPTED].into_iter().find(|(known, _)| *known == url.scheme)?;
    Some(nodes_of(of_each, url, rules))
}

fn nodes_of<'a>(
    of_each: &'static str,
    url: &Url<'a>,
    rules: &mut Rules,
) -> Result<Vec<Url<'a>>, LockError> {
    let mut passed_on = Vec::new();
    for setting in &url.settings {
        let (name, value) = named(setting);
        match name {
            "durable" if *setting == name => rules.durable = true,
            "durable" => {
                return Err(LockError::invalid("durable", "write it without a value"));
            }
            "longest_ttl" => {
                rules.longest_ttl = time("longest_ttl", value, TTL_MIN..=TTL_MAX)?;
            }
            "node_timeout" => {
                rules.node = time("node_timeout", value, Duration::from_millis(1)..=TTL_MAX)?;
            }
            "cacert" | "cert" | "key" if url.scheme == ENCRYPTED.0 => passed_on.push(*setting),
            _ if url.may_be_cut => return Err(url.refuse_unknown(setting)),
            // The URL of a node refuses those that a node cannot have.
            "replicated" | "replicated_timeout" | "fence_retention" => passed_on.push(*setting),
            _ => return Err(url.refuse_unknown(setting)),
        }
    }
    if url.hosts.split(',').any(str::is_empty) {
        return Err(LockError::invalid_url(FORM));
    }
    Ok(url.hosts.split(',').map(|host| url.of_one(of_each, host, passed_on.clone())).collect())
}

fn time(
    name: &'static str,
    value: &str,
    times: RangeInclusive<Duration>,
) -> Result<Duration, LockError> {
    duration(value).filter(|time| times.contains(time)).ok_or_else(|| {
        let (shortest, longest) = times.into_inner();
        let hours = longest.as_secs() / 3_600;
        LockError::invalid(name, format!("write a time from {shortest:?} to {hours}h, as `10m`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BUILDER: Rules = Rules { longest_ttl: SECOND, durable: false, node: SECOND };

    /// The nodes of a URL, and their settings beside those of a builder.
    fn read(url: &str, mut rules: Rules) -> Result<(Vec<Url<'_>>, Rules), LockError> {
        let nodes = nodes(&Url::parse(url)?, &mut rules).expect("its scheme")?;
        Ok((nodes, rules))
    }

    #[test]
    fn it_names_all_nodes() {
        let redis = Url::parse("redis://a").expect("a URL");
        assert!(nodes(&redis, &mut BUILDER.clone()).is_none());
        let nodes = |url: &'static str| -> Vec<_> {
            let node = |node: Url<'static>| {
                (node.scheme, node.login, node.hosts, node.path, node.settings.join("&"))
            };
            read(url, BUILDER).expect(url).0.into_iter().map(node).collect()
        };
        let node = |host| ("redis", Some("u:p"), host, Some("4"), String::new());
        assert_eq!(nodes("redlock://u:p@a:1,b,[::1]:3/4"), ["a:1", "b", "[::1]:3"].map(node));
        let node = |host| ("rediss", None, host, None, "cacert=x&key=y".to_owned());
        let url = "redlocks://a,b,c?cacert=x&durable&key=y";
        assert_eq!(nodes(url), ["a", "b", "c"].map(node));
    }

    #[test]
    fn its_settings_take_precedence_over_the_builders() {
        let rules = |settings| {
            let url = format!("redlock://a,b,c{settings}");
            read(&url, BUILDER).expect(settings).1
        };
        let durable = Rules { durable: true, ..BUILDER };
        assert_eq!(rules(""), BUILDER);
        assert_eq!(rules("/1?durable"), durable);
        assert_eq!(
            rules("?longest_ttl=10m&node_timeout=100ms"),
            Rules { longest_ttl: SECOND * 600, node: SECOND / 10, ..BUILDER }
        );
        assert_eq!(read("redlock://a,b,c", durable).expect("a URL").1, durable);
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
            ("a,b,c?longest_ttl", "`longest_ttl` is not usable: write a time from 50ms to 24h"),
            ("a,b,c?longest_ttl=10", "`10m`"),
            ("a,b,c?longest_ttl=1ms", "`longest_ttl` is not"),
            ("a,b,c?longest_ttl=25h", "`longest_ttl` is not"),
            ("a,b,c?longest_ttl=99999999999999999999h", "`longest_ttl` is not"),
            (
                "a,b,c?node_timeout=0ms",
                "`node_timeout` is not usable: write a time from 1ms to 24h",
            ),
            ("a,b,c?node_timeout=-1s", "`node_timeout` is not"),
            (":hun?ter2@a,b,c", "`%3F`"),
            (":durable?durable@a,b,c", "`%3F`"),
        ] {
            let url = format!("redlock://{rest}");
            let error = read(&url, BUILDER).err().expect(rest).to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{rest}: {error}");
        }
    }
}
