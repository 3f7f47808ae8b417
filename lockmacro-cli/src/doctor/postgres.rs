//! The findings that a PostgreSQL database may have.

use super::Patient;

/// A transaction that is open for longer, in seconds, makes locks slow.
const OPEN_MAX: f64 = 3_600.0;

impl Patient<'_> {
    pub(super) fn look_at_postgres(&mut self) {
        let on = |name: &str| format!("ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();");
        for name in ["fsync", "full_page_writes"] {
            if self.text(name) == "off" {
                let text = format!("{name} is off: a crash may forget locks that were granted");
                self.problem("not_durable", text, on(name));
            }
        }
        if self.text("autovacuum") == "off" {
            let text = "autovacuum is off: the tables of the locks grow, and locks become slow";
            self.hint("autovacuum", text, on("autovacuum"));
        }
        if self.number("replicas") > 0.0 && self.text("synchronous_standby_names").is_empty() {
            let text = "its standbys are asynchronous: a failover may forget the last locks";
            let mend = "name them in synchronous_standby_names, more of them than have to answer";
            self.hint("asynchronous", text, mend);
        }
        let open = self.number("oldest_transaction_seconds");
        if open > OPEN_MAX {
            let text = format!("a transaction is open for {open} s: locks become slow meanwhile");
            let mend = "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start;";
            self.hint("long_transaction", text, mend);
        }
        if !self.facts.gets_pushes {
            let text = "pushes do not arrive, as behind a pooler, and so waiters poll";
            self.hint("no_pushes", text, "`?listen=host:port` of the server itself, in the URL");
        }
        let mend = "raise max_connections and restart the server, or use a pooler";
        self.look_at_connections("connections", "max_connections", mend);
    }
}
