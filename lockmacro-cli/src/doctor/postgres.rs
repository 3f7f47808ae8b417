//! The findings that a PostgreSQL database may have.

use super::{Finding, Patient};
use crate::args::{line, url_of_arguments};

/// A transaction that is open for longer, in seconds, makes locks slow.
const OPEN_MAX: f64 = 3_600.0;
/// The connections of a manager: the most, and those without which it is of no use.
const CONNECTIONS_MAX: f64 = 12.0;
const CONNECTIONS_MIN: f64 = 2.0;

/// The line that makes the schema of a URL.
pub(super) fn install(url: &str) -> String {
    let (line, rest) = line(url_of_arguments(url), "postgres install");
    line + rest
}

impl Patient<'_> {
    pub(super) fn look_at_postgres(&mut self) {
        let on = |name: &str| format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();");
        for name in ["fsync", "full_page_writes"] {
            if self.text(name) == "off" {
                let text = format_args!("{name} is off: a crash may forget granted locks");
                self.problem("not_durable", text, on(name));
            }
        }
        let foreign = self.text("foreign_parts");
        if !foreign.is_empty() {
            let text = format_args!("{foreign} belong to another user than their schema");
            self.problem("owners", text, install(self.url) + ": it names the statements");
        }
        let altered = self.text("altered");
        if !altered.is_empty() {
            let text = "the procedures that check fences were altered: outside of a transaction, \
                        where they protect nothing, they do not fail any more";
            self.problem("altered", text, altered);
        }
        if self.text("autovacuum") == "off" {
            let text = "autovacuum is off: the tables of the locks grow, and locks become slow";
            self.hint("autovacuum", text, on("autovacuum"));
        }
        if self.number("replicas") > 0.0 && self.text("synchronous_standby_names").is_empty() {
            let text = "its standbys are asynchronous: a failover may forget the last locks";
            let fix = "name them in synchronous_standby_names, more of them than have to answer";
            self.hint("asynchronous", text, fix);
        }
        let open = self.number("oldest_transaction_seconds");
        if open > OPEN_MAX {
            let fix = "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start;";
            let text = format_args!("a transaction is open for {open} s: locks become slow");
            self.hint("long_transaction", text, fix);
        }
        if !self.facts.gets_pushes {
            let text = "pushes do not arrive, as behind a pooler, and so waiters poll";
            self.hint("no_pushes", text, "`?listen=host:port` of the server itself, in the URL");
        }
        let encoding = self.text("server_encoding");
        if !matches!(encoding, "UTF8" | "SQL_ASCII" | "") {
            let text = format_args!("its encoding is {encoding}: keys with other characters fail");
            self.hint("encoding", text, "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0");
        }
        let allowed = self.number("connections_allowed");
        if allowed < CONNECTIONS_MAX {
            let text = format_args!(
                "this user may have {allowed} connections, and a manager uses {CONNECTIONS_MAX}"
            );
            let fix = "raise max_connections, or the CONNECTION LIMIT of the user or database";
            let is_problem = allowed < CONNECTIONS_MIN;
            self.found.push(Finding::new(is_problem, "few_connections", text, fix));
        }
        if self.text("connections").is_empty() {
            let text = "the connections and open transactions of others were not examined";
            let user = self.facts.user.as_deref().unwrap_or_default().replace('"', "\"\"");
            let fix = format_args!("GRANT pg_read_all_stats TO \"{user}\";");
            self.hint("no_statistics", text, fix);
        }
        let fix = "raise max_connections and restart the server, or use a pooler";
        self.look_at_connections("connections", "max_connections", fix);
    }
}
