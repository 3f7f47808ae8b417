//! A connection that looks at a server from outside, with ordinary commands.

use std::time::Duration;

use redis::{Cmd, Connection, FromRedisValue, RedisResult};

/// A blocking connection. Its methods panic where the server refuses, as an assertion would.
pub struct Admin {
    connection: Connection,
}

impl Admin {
    /// Connects to `url`; to the first node of a cluster.
    pub fn connect(url: &str) -> Admin {
        let url = url.replace("redis-cluster://", "redis://");
        let url = url.split(',').next().expect("a first part");
        let client = redis::Client::open(url).expect("a valid address");
        let connect = |_| client.get_connection_with_timeout(Duration::from_secs(5));
        // A signal may interrupt it, a server that changes its role closes its connections, and one
        // that saves each write may wait for a busy disk for longer.
        let is_transient = |error: &redis::RedisError| {
            let error = error.to_string();
            ["Interrupted", "reset by peer", "temporarily unavailable"]
                .iter()
                .any(|transient| error.contains(transient))
        };
        let connection = (0..10)
            .map(connect)
            .find(|connection| !connection.as_ref().is_err_and(is_transient))
            .expect("it is not interrupted each time")
            .expect("the server accepts a connection");
        Admin { connection }
    }

    /// Sends one command and gives the reply, refusals included.
    pub fn send<T: FromRedisValue>(&mut self, words: &[&str]) -> RedisResult<T> {
        let mut command = Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.query(&mut self.connection)
    }

    /// Sends one command that must succeed.
    pub fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        self.send(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The content of a string key.
    pub fn get(&mut self, key: &str) -> Option<String> {
        self.ask(&["GET", key])
    }

    /// The time a key has left; `None` when it is absent or has no end.
    pub fn ttl(&mut self, key: &str) -> Option<Duration> {
        let left: i64 = self.ask(&["PTTL", key]);
        u64::try_from(left).ok().map(Duration::from_millis)
    }

    /// Every key there is, sorted.
    pub fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    /// Sets a configuration value.
    pub fn configure(&mut self, name: &str, value: &str) {
        self.ask::<()>(&["CONFIG", "SET", name, value]);
    }

    /// How many commands the server has run so far, of all clients.
    pub fn commands(&mut self) -> u64 {
        let stats: String = self.ask(&["INFO", "stats"]);
        let count = stats.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        count.expect("a number of commands").trim().parse().expect("a number")
    }

    /// The commands the server has run since the last [`Admin::forget_calls`], without those of
    /// connections being opened and looked at, as sorted `(name, calls)`.
    pub fn calls(&mut self) -> Vec<(String, u64)> {
        let text: String = self.ask(&["INFO", "commandstats"]);
        let mut calls: Vec<(String, u64)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
            .map(|(name, rest)| {
                let count = rest.split(',').next().unwrap_or_default();
                (name.to_owned(), count.parse().expect("a number of calls"))
            })
            .filter(|(name, _)| !OF_CONNECTIONS.iter().any(|own| name.starts_with(own)))
            .collect();
        calls.sort();
        calls
    }

    /// How often these commands were run since the last [`Admin::forget_calls`].
    pub fn count(&mut self, names: &[&str]) -> u64 {
        let calls = self.calls().into_iter();
        calls.filter(|(name, _)| names.contains(&name.as_str())).map(|(_, calls)| calls).sum()
    }

    /// How often the server has refused something with this code.
    pub fn refused(&mut self, code: &str) -> u64 {
        let errors: String = self.ask(&["INFO", "errorstats"]);
        let name = format!("errorstat_{code}:count=");
        let count = errors.lines().find_map(|line| line.strip_prefix(&name));
        count.map_or(0, |count| count.parse().expect("a number of errors"))
    }

    /// Starts counting calls again.
    pub fn forget_calls(&mut self) {
        self.ask::<()>(&["CONFIG", "RESETSTAT"]);
    }
}

const OF_CONNECTIONS: [&str; 8] =
    ["auth", "client", "config", "hello", "info", "ping", "select", "time"];
