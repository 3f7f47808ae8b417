//! The nodes of a Redlock by their URLs.

use std::collections::HashSet;

use crate::error::LockError;

const SCHEME: &str = "redlock://";
const FORM: &str =
    "it is not of the form `redlock://[user:password@]host:port,host:port,host:port[/db]`";

/// What a URL says of all nodes at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OneUrl {
    pub(crate) urls: Vec<String>,
    pub(crate) durable: bool,
}

/// Reads `redlock://[user:password@]host[:port],…[/db][?durable]`; `None` for another scheme.
pub(crate) fn listed(url: &str) -> Option<Result<OneUrl, LockError>> {
    let rest = url.strip_prefix(SCHEME)?;
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, db) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = match hosts.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), hosts),
    };
    let durable = options == "durable";
    if !(durable || options.is_empty()) {
        return Some(invalid("of options there is only `?durable`".to_owned()));
    }
    if hosts.split(',').any(str::is_empty) {
        return Some(invalid(FORM.to_owned()));
    }
    let db = if db.is_empty() { String::new() } else { format!("/{db}") };
    let urls = hosts.split(',').map(|host| format!("redis://{login}{host}{db}")).collect();
    Some(Ok(OneUrl { urls, durable }))
}

/// What nodes are called in errors: where they are, without user, password and database.
pub(super) fn names(urls: &[String]) -> Result<Vec<String>, LockError> {
    match urls.len() {
        count @ (0..3) => {
            let why = "with fewer, one that fails stops all locks: use three nodes, or one server";
            return invalid(format!(
                "there are {count} nodes, and a quorum takes 3 or more: {why}"
            ));
        }
        count if count % 2 == 0 => {
            let why = "bears no more failures than one node fewer, and can be split in halves";
            return invalid(format!("there are {count} nodes, and an even number {why}"));
        }
        _ => {}
    }
    let several = |url: &String| {
        let scheme = url.split_once("://").map_or(url.as_str(), |(scheme, _)| scheme);
        scheme.ends_with("-cluster") || scheme.ends_with("-sentinel")
    };
    if urls.iter().any(several) {
        let why = "whether one of its servers has forgotten a lock cannot be seen from its age";
        return invalid(format!("a cluster or a group of replicas cannot be a node: {why}"));
    }
    let names: Vec<_> = urls.iter().map(|url| name(url)).collect();
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(same(twice, twice)),
        None => Ok(names),
    }
}

/// Two nodes that are one server would have two votes.
pub(super) fn same(one: &str, other: &str) -> LockError {
    let detail = format!("{one} and {other} are one server, which must not have two votes");
    LockError::InvalidUrl { detail }
}

fn name(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    // Where it is a socket, a path. No part of a login, also of one that should have been escaped.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    match place {
        "" => format!("/{path}"),
        _ if has_port(place) => place.to_ascii_lowercase(),
        _ => format!("{}:6379", place.to_ascii_lowercase()),
    }
}

fn has_port(place: &str) -> bool {
    // The colons of an IPv6 address are in brackets.
    place.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'))
}

fn invalid<T>(detail: String) -> Result<T, LockError> {
    Err(LockError::InvalidUrl { detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(urls: &[&str]) -> Vec<String> {
        urls.iter().map(|url| (*url).to_owned()).collect()
    }

    #[test]
    fn one_url_names_all_nodes() {
        assert_eq!(listed("redis://a"), None);
        let all = listed("redlock://u:p@a:1,b,[::1]:3/4?durable").unwrap().unwrap();
        let expected = urls(&["redis://u:p@a:1/4", "redis://u:p@b/4", "redis://u:p@[::1]:3/4"]);
        assert_eq!(all, OneUrl { urls: expected, durable: true });
        for wrong in ["redlock://", "redlock://a,,b", "redlock://a,b,c?fast"] {
            assert!(listed(wrong).unwrap().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_a_place_and_no_secret() {
        let all = urls(&[
            "redis://u:p@A:1/4",
            "redis://b",
            "rediss://[::1]/0",
            "redis+unix:///run/r",
            "redis://[::2]:7?protocol=3",
            "redis+unix:///run/R?db=1",
            "redis://eu-cluster:6379",
            "redis://u:-cluster:/x?y@c",
            "redis://d",
        ]);
        let expected = [
            "a:1",
            "b:6379",
            "[::1]:6379",
            "/run/r",
            "[::2]:7",
            "/run/R",
            "eu-cluster:6379",
            "c:6379",
            "d:6379",
        ];
        assert_eq!(names(&all).unwrap(), expected);
    }

    #[test]
    fn few_even_and_doubled_nodes_are_refused() {
        let refused = |list: &[&str], why: &str| {
            let error = names(&urls(list)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(&[], "there are 0 nodes");
        refused(&["redis://a"], "3 or more");
        refused(&["redis://a", "redis://b", "redis://c", "redis://d"], "an even number");
        refused(&["redis://a", "redis://b", "redis://u:p@A:6379/3"], "a:6379 and a:6379 are one");
        refused(&["redis://a", "redis-cluster://b", "redis://c"], "cannot be a node");
        refused(&["redis://a", "redis-sentinel://b/m", "redis://c"], "cannot be a node");
    }
}
