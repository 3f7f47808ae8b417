//! What can be wrong with a Redis server.

use super::Patient;

/// The first version with the commands of the scripts.
const FIRST: (u64, u64) = (6, 2);
/// The first version that tells the rights of a user.
const TELLS_RIGHTS: (u64, u64) = (7, 0);
/// A replica that was silent for longer, in seconds, is reported.
const LAG_MAX: f64 = 5.0;
/// The share of its memory from which on a server is nearly full.
const NEARLY_FULL: f64 = 0.9;
/// Without these, waiters poll.
const OF_WAITERS: [&str; 3] = ["+subscribe", "+publish", "+pubsub"];

impl Patient<'_> {
    pub(super) fn look_at_redis(&mut self) {
        let cli = cli(self.server);
        let user = self.facts.user.clone().unwrap_or_else(|| "USER".to_owned());
        self.look_at_rights(&cli, &user);
        let no_vote = self.text("no_vote").to_owned();
        let mend = "wait, or `?durable` in the URL where all nodes write to disk".to_owned();
        self.hint(no_vote.is_empty(), "no_vote", format!("it does not vote: {no_vote}"), mend);
        if self.text("redis_version").is_empty() {
            let text = "the user may not call INFO: memory, role and more were not examined";
            let mend = format!("{cli} ACL SETUSER {user} +info");
            return self.hint(false, "no_info", text.to_owned(), mend);
        }
        self.look_at_server(&cli);
        self.look_at_data(&cli);
        let more = self.number("maxclients").unwrap_or_default() * 2.0;
        let mend = format!("{cli} CONFIG SET maxclients {more}");
        self.look_at_connections("connected_clients", "maxclients", &mend);
    }

    fn look_at_rights(&mut self, cli: &str, user: &str) {
        let is_old = !self.text("redis_version").is_empty() && self.version() < TELLS_RIGHTS;
        let unknown = is_old && user != "default";
        let Some(missing) = self.facts.missing_rights.as_ref().filter(|_| !unknown) else {
            let text = format!("the rights of `{user}` were not checked");
            let mend = match is_old {
                true => "lockmacro acl PATTERN, and compare".to_owned(),
                false => "lockmacro doctor KEY, with a key that it may lock".to_owned(),
            };
            return self.hint(false, "rights_unknown", text, mend);
        };
        let is_of_waiters = |right: &&String| {
            right.starts_with('&')
                || OF_WAITERS.iter().any(|it| right.replace("+s", "+").contains(&it[1..]))
        };
        let (of_waiters, of_locks): (Vec<_>, Vec<_>) = missing.iter().partition(is_of_waiters);
        let line = |rights: &[&String]| {
            let rights: Vec<_> = rights.iter().map(|right| right.as_str()).collect();
            format!("{cli} ACL SETUSER {user} {}", rights.join(" "))
        };
        let text = format!("`{user}` lacks rights that locks need");
        self.problem(of_locks.is_empty(), "rights", text, line(&of_locks));
        let text = format!("`{user}` lacks rights that waiters need, and so they poll");
        self.hint(of_waiters.is_empty(), "rights_of_waiters", text, line(&of_waiters));
        let text =
            "it sends no pushes, and so waiters poll: is there a proxy in between?".to_owned();
        let mend = "the server itself in the URL, with RESP3".to_owned();
        let is_known = self.facts.gets_pushes || !of_waiters.is_empty();
        self.hint(is_known, "no_pushes", text, mend);
    }

    fn version(&self) -> (u64, u64) {
        let mut parts = self.text("redis_version").split('.').map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }

    fn look_at_server(&mut self, cli: &str) {
        let text =
            format!("it is Redis {}, and scripts need 6.2 or later", self.text("redis_version"));
        self.problem(self.version() >= FIRST, "version", text, "upgrade the server".to_owned());
        let primary = format!("{}:{}", self.text("master_host"), self.text("master_port"));
        let text = format!("it is a replica of {primary}, and grants no lock");
        self.problem(
            self.text("role") != "slave",
            "replica",
            text,
            format!("redis://{primary} in the URL"),
        );
        let is_cluster = self.text("cluster_enabled") == "1" && !self.url.contains("-cluster://");
        let text = "it is a node of a cluster, and refuses the keys of other nodes".to_owned();
        let mend = format!("redis-cluster://{} in the URL", self.server);
        self.problem(!is_cluster, "cluster", text, mend);
        for nth in 0.. {
            let replica = self.text(&format!("slave{nth}")).to_owned();
            let field = |name: &str| {
                replica.split(',').find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
            };
            let Some(ip) = field("ip") else { break };
            let lag = field("lag").and_then(|lag| lag.parse().ok()).unwrap_or(0.0);
            let is_well = field("state") == Some("online") && lag <= LAG_MAX;
            let text =
                format!("its replica {ip} is {lag} s behind: a failover forgets the locks since");
            self.hint(is_well, "replica_behind", text, format!("{cli} INFO replication"));
        }
    }

    fn look_at_data(&mut self, cli: &str) {
        let policy = self.text("maxmemory_policy").to_owned();
        let most = self.number("maxmemory").unwrap_or_default();
        let evicts = !policy.is_empty() && policy != "noeviction";
        let mend = format!("{cli} CONFIG SET maxmemory-policy noeviction");
        let text =
            format!("its maxmemory-policy is {policy}: when it is full, it evicts held locks");
        self.problem(!evicts || most == 0.0, "eviction", text, mend.clone());
        let text =
            format!("its maxmemory-policy is {policy}: with a maxmemory, it would evict locks");
        self.hint(!evicts || most > 0.0, "eviction_later", text, mend);
        let used = self.number("used_memory").unwrap_or_default() / most.max(1.0);
        let mend = format!("{cli} CONFIG SET maxmemory {}", most * 2.0);
        let is_full = most > 0.0 && used >= 1.0;
        let text = "its memory is full, and it refuses new locks".to_owned();
        self.problem(!is_full, "full", text, mend.clone());
        let text = format!(
            "{:.0} % of its memory is used, and a full server refuses new locks",
            used * 100.0
        );
        self.hint(is_full || most == 0.0 || used < NEARLY_FULL, "nearly_full", text, mend);
        let failed =
            ["rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"];
        let failed = failed.into_iter().find(|it| self.text(it) == "err");
        let text = format!(
            "it could not save its data ({}), and may refuse writes",
            failed.unwrap_or_default()
        );
        let mend = format!("free its disk, and then {cli} BGSAVE");
        self.problem(failed.is_none(), "not_saved", text, mend);
        // Without the right to CONFIG it is not known whether there are snapshots.
        let saves = self.facts.settings.get("save").map(String::as_str);
        let lost = match saves {
            Some("") => "all locks and fences",
            _ => "the locks and fences since its last snapshot",
        };
        let is_kept = self.text("aof_enabled") != "0" || saves.is_none();
        let mend = format!("{cli} CONFIG SET appendonly yes");
        self.hint(is_kept, "not_durable", format!("a restart forgets {lost}"), mend);
    }
}

/// The command line of a server.
pub(super) fn cli(server: &str) -> String {
    match server.rsplit_once(':') {
        Some((host, port)) => format!("redis-cli -h {} -p {port}", host.trim_matches(['[', ']'])),
        None => format!("redis-cli -s {server}"),
    }
}
