//! The names of the nodes of a Redlock, and which sets of nodes are allowed.

use std::collections::HashSet;

use crate::value::error::LockError;

/// The names of nodes in errors: their addresses, without user, password and database.
pub(crate) fn names(urls: &[String]) -> Result<Vec<String>, LockError> {
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

/// The error for two nodes that are one server, which would have two votes.
pub(crate) fn same(one: &str, other: &str) -> LockError {
    let detail = format!("{one} and {other} are one server: name each server once");
    LockError::InvalidUrl { detail }
}

fn name(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    // Without any part of a login, even of one that was not escaped. A socket is named by its path.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    match host {
        "" => format!("/{path}"),
        _ if has_port(host) => host.to_ascii_lowercase(),
        _ => format!("{}:6379", host.to_ascii_lowercase()),
    }
}

fn has_port(host: &str) -> bool {
    // The colons of an IPv6 address are in brackets.
    host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'))
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
    fn a_name_is_an_address_without_secrets() {
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
