//! The names of the nodes of a Redlock, and which sets of nodes are allowed.

use redis::ConnectionAddr;

use crate::store::redis::client::connector::Server;
use crate::store::redis::client::url::{Addresses, Deployment};
use crate::sys::random::HashSet;
use crate::value::error::LockError;

/// The names of nodes in errors: their addresses, without user, password and database.
pub(crate) fn names(nodes: &[Deployment]) -> Result<Vec<String>, LockError> {
    match nodes.len() {
        count @ (0..3) => {
            let why = "with fewer, one that fails stops all locks: use three nodes, or one server";
            return Err(LockError::invalid_url(format!(
                "there are {count} nodes, and a quorum takes 3 or more: {why}"
            )));
        }
        count if count % 2 == 0 => {
            let why = "bears no more failures than one node fewer, and can be split in halves";
            let detail = format!("there are {count} nodes, and an even number {why}");
            return Err(LockError::invalid_url(detail));
        }
        _ => {}
    }
    let names: Option<Vec<_>> = nodes.iter().map(name).collect();
    let Some(names) = names else {
        let why = "whether one of its servers has forgotten a lock cannot be seen from its age";
        let detail = format!("a cluster or a group of replicas cannot be a node: {why}");
        return Err(LockError::invalid_url(detail));
    };
    let mut seen = HashSet::default();
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(same(twice, twice)),
        None => Ok(names),
    }
}

/// The error for two nodes that are one server, which would have two votes.
pub(crate) fn same(one: &str, other: &str) -> LockError {
    LockError::invalid_url(format!("{one} and {other} are one server: name each server once"))
}

/// The name of one server; `None` for several.
fn name(node: &Deployment) -> Option<String> {
    let Addresses::One(Server::At(at)) = &node.at else { return None };
    Some(match at {
        // The colons of an IPv6 address are in brackets.
        ConnectionAddr::Tcp(host, port) if host.contains(':') => {
            format!("[{}]:{port}", host.to_ascii_lowercase())
        }
        ConnectionAddr::Tcp(host, port) => format!("{}:{port}", host.to_ascii_lowercase()),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::value::url::Url;

    fn nodes(urls: &[&str]) -> Vec<Deployment> {
        let timeout = Duration::from_secs(2);
        let node = |url: &&str| Deployment::of(&Url::parse(url).expect(url), timeout).expect(url);
        urls.iter().map(node).collect()
    }

    #[test]
    fn a_name_is_an_address_without_secrets() {
        let all = nodes(&[
            "redis://u:p@A:1/4",
            "redis://b",
            "redis://[::1]/0",
            "redis://[::2]:7",
            "redis://eu-cluster:6379",
            "redis://u:-cluster@c",
            "redis://d",
        ]);
        let expected =
            ["a:1", "b:6379", "[::1]:6379", "[::2]:7", "eu-cluster:6379", "c:6379", "d:6379"];
        assert_eq!(names(&all).unwrap(), expected);
    }

    #[test]
    #[cfg(unix)]
    fn the_name_of_a_socket_is_its_path() {
        let all = nodes(&["redis+unix:///run/r", "redis+unix:///run/R?db=1", "redis://a"]);
        assert_eq!(names(&all).unwrap(), ["/run/r", "/run/R", "a:6379"]);
    }

    #[test]
    fn few_even_and_doubled_nodes_are_refused() {
        let refused = |list: &[&str], why: &str| {
            let error = names(&nodes(list)).unwrap_err().to_string();
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
