//! The findings that a Redis server may have.

use lockmacro_runtime::LockError;

use super::{Finding, Patient, is_encrypted};
use crate::show::shell;

/// The first version with the commands of the scripts.
const FIRST: (u64, u64) = (6, 2);
/// A replica that was silent for longer, in seconds, is reported.
const LAG_MAX: f64 = 5.0;
/// The share of its memory from which on a server is nearly full.
const NEARLY_FULL: f64 = 0.9;
/// What fixes a Redlock with one server under two names.
pub(super) const ONCE: &str = "name each server once in the URL";
/// Parts of the names of rights without which waiters poll.
const OF_WAITERS: [&str; 4] = ["&", "subscribe", "publish", "pubsub"];

impl Patient<'_> {
    pub(super) fn look_at_redis(&mut self) {
        let cli = cli(self.url, self.server);
        let facts = self.facts;
        let user = facts.user.as_deref().unwrap_or("default");
        if let Some(error) = &facts.no_vote {
            let text = format_args!("it does not vote: {error}");
            if let LockError::InvalidSetting { .. } = error {
                self.problem("one_server", text, ONCE);
            } else {
                let fix = "wait, or `?durable` in the URL where all nodes write to disk";
                self.hint("no_vote", text, fix);
            }
        }
        let line = |rights: &[String]| {
            let rights: Vec<_> = rights.iter().map(|right| shell(right)).collect();
            format!("{cli} ACL SETUSER {} {}", shell(user), rights.join(" "))
        };
        self.look_at_rights(user, line);
        if !facts.lacks.is_empty() {
            let lacks = facts.lacks.join(", ");
            let text = format_args!("it is only in part like Redis, and lacks {lacks}");
            self.problem("half_server", text, "use Redis 6.2 or later, or Valkey");
        }
        if let Some(error) = &facts.no_info {
            let text = format_args!("it does not answer INFO, and little was examined: {error}");
            let fix = match error {
                LockError::AccessDenied { .. } => line(&["+info".to_owned()]),
                _ => "ask its provider for INFO, or use Redis or Valkey".to_owned(),
            };
            return self.hint("no_info", text, fix);
        }
        self.look_at_server(&cli);
        self.look_at_memory(&cli);
        self.look_at_disk(&cli);
        let twice = self.number("maxclients") * 2.0;
        let fix = format_args!("{cli} CONFIG SET maxclients {twice}");
        self.look_at_connections("connected_clients", "maxclients", fix);
    }

    fn look_at_rights(&mut self, user: &str, line: impl Fn(&[String]) -> String) {
        let facts = self.facts;
        let unknown = format_args!("the rights of `{user}` were not checked");
        let is_told = facts.missing_rights.is_some() || user == "default";
        if !is_told {
            self.hint("rights_unknown", unknown, "compare them with `lockmacro acl`");
        } else if facts.needs_key {
            let fix = "lockmacro doctor KEY, with a key that it may lock";
            self.hint("rights_unknown", unknown, fix);
        }
        let is_of_waiters = |right: &String| OF_WAITERS.iter().any(|it| right.contains(it));
        let (of_waiters, of_locks): (Vec<_>, Vec<_>) =
            facts.missing_rights.iter().flatten().cloned().partition(is_of_waiters);
        if !of_locks.is_empty() {
            let text = format_args!("`{user}` lacks rights that locks need");
            self.problem("rights", text, line(&of_locks));
        }
        if !of_waiters.is_empty() {
            let text = format_args!("`{user}` lacks rights that waiters need, and so they poll");
            self.hint("rights_of_waiters", text, line(&of_waiters));
        } else if is_told && of_locks.is_empty() && !facts.gets_pushes {
            let text = "pushes do not arrive, as behind some proxies, and so waiters poll";
            self.hint("no_pushes", text, "the server itself in the URL, with RESP3");
        }
    }

    fn look_at_server(&mut self, cli: &str) {
        let version = self.text("redis_version");
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        let known = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if !version.is_empty() && known < FIRST {
            let text = format_args!("it is Redis {version}, and scripts need 6.2 or later");
            self.problem("version", text, "upgrade the server");
        }
        if self.text("role") == "slave" {
            let primary = format!("{}:{}", self.text("master_host"), self.text("master_port"));
            let text = format_args!("it is a replica of {primary}, and grants no lock");
            self.problem("replica", text, format_args!("the primary, {primary}, in the URL"));
        }
        if self.text("cluster_enabled") == "1" && !self.url.contains("-cluster://") {
            let text = "it is a node of a cluster, and refuses the keys of other nodes";
            self.problem("cluster", text, "`redis-cluster://` or `rediss-cluster://` in the URL");
        }
        let acks = self.url.split(['?', '&']).find_map(|it| it.strip_prefix("replicated="));
        let replicas = self.number("connected_slaves");
        let info = format!("{cli} INFO replication");
        match acks {
            Some(acks) if replicas < acks.parse().unwrap_or_default() => {
                let text = format_args!("{replicas} replicas are too few for `replicated={acks}`");
                self.problem("too_few_replicas", text, &info);
            }
            None if replicas > 0.0 => {
                let text = "its replicas are asynchronous: a failover may forget the last locks";
                self.hint("asynchronous", text, "`?replicated=1` in the URL");
            }
            _ => {}
        }
        // The server tells this where it refuses writes without some, also to who may not ask how
        // many.
        let good = self.text("min_slaves_good_slaves").parse().unwrap_or(f64::INFINITY);
        let least = self.number("min-replicas-to-write").max(1.0);
        if good < least {
            let text =
                format_args!("it has {good} good replicas of {least}, and refuses all writes");
            let set = format!("start more, or {cli} CONFIG SET min-replicas-to-write {good}");
            self.problem("too_few_replicas", text, set);
        }
        for (name, replica) in &self.facts.settings {
            let field = |name| replica.split(',').find_map(|it| it.strip_prefix(name));
            let (Some(ip), Some(state)) = (field("ip="), field("state=")) else { continue };
            let lag = field("lag=").and_then(|lag| lag.parse().ok()).unwrap_or(0.0);
            if name.starts_with("slave") && (state != "online" || lag > LAG_MAX) {
                let text = format_args!("its replica {ip} is {state}, and {lag} s behind");
                self.hint("replica_behind", text, &info);
            }
        }
    }

    fn look_at_memory(&mut self, cli: &str) {
        let policy = self.text("maxmemory_policy");
        let most = self.number("maxmemory");
        let share = self.number("used_memory") / most.max(1.0);
        let room = "raise its maxmemory, or keep other data elsewhere";
        if !policy.is_empty() && policy != "noeviction" {
            let is_problem = most > 0.0;
            let when = if is_problem { "it evicts" } else { "with a maxmemory it would evict" };
            let text = format_args!("its maxmemory-policy is {policy}: {when} held locks");
            let fix = format_args!("{cli} CONFIG SET maxmemory-policy noeviction");
            self.found.push(Finding::new(is_problem, "eviction", text, fix));
        } else if most > 0.0 && share >= 1.0 {
            self.problem("full", "its memory is full, and it refuses new locks", room);
        } else if most > 0.0 && share >= NEARLY_FULL {
            let used = share * 100.0;
            let text = format_args!("{used:.0} % of its memory is used: full, it grants no lock");
            self.hint("nearly_full", text, room);
        }
    }

    fn look_at_disk(&mut self, cli: &str) {
        let states = ["rdb_last_bgsave_status", "aof_last_write_status"];
        if let Some(failed) = states.into_iter().find(|it| self.text(it) == "err") {
            let text = format_args!("it could not save its data ({failed}), and may refuse writes");
            self.problem("not_saved", text, format_args!("free its disk, and then {cli} BGSAVE"));
        }
        // Without the right to CONFIG these are not known.
        let setting = |name: &str| self.facts.settings.get(name).map(String::as_str);
        let syncs = setting("appendfsync");
        let appends = self.text("aof_enabled") == "1";
        if self.url.contains("durable") && (!appends || syncs.is_some_and(|it| it != "always")) {
            let text = "its restart may forget locks, which `durable` denies, and grant one twice";
            let fix = format_args!("{cli} CONFIG SET appendonly yes appendfsync always");
            self.problem("not_durable", text, fix);
        } else if !appends && let Some(saves) = setting("save") {
            let lost = if saves.is_empty() { "all" } else { "since its last snapshot" };
            let text = format_args!("a restart forgets locks and fences: {lost}");
            self.hint("not_durable", text, format_args!("{cli} CONFIG SET appendonly yes"));
        }
    }
}

/// The command line of a server, without a login.
pub(super) fn cli(url: &str, server: &str) -> String {
    let tls = if is_encrypted(url) { " --tls" } else { "" };
    match server.rsplit_once(':') {
        Some((host, port)) => {
            format!("redis-cli -h {} -p {port}{tls}", shell(host.trim_matches(['[', ']'])))
        }
        None if server.starts_with('/') => format!("redis-cli -s {}", shell(server)),
        None => "redis-cli".to_owned(),
    }
}
