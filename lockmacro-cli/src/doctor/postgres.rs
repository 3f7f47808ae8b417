//! What can be wrong with a PostgreSQL database.

use super::Patient;

/// A transaction that is open for longer, in seconds, makes locks slow.
const OPEN_MAX: f64 = 3_600.0;

impl Patient<'_> {
    pub(super) fn look_at_postgres(&mut self) {
        let set = |name: &str, value: &str| {
            format!("ALTER SYSTEM SET {name} = {value}; SELECT pg_reload_conf();")
        };
        for name in ["fsync", "full_page_writes"] {
            let text = format!("{name} is off: a crash may forget locks that were granted");
            self.problem(self.text(name) != "off", "not_durable", text, set(name, "on"));
        }
        let text =
            "autovacuum is off: the tables of the locks grow, and locks become slow".to_owned();
        self.hint(self.text("autovacuum") != "off", "autovacuum", text, set("autovacuum", "on"));
        let is_alone = self.number("replicas").unwrap_or_default() == 0.0;
        let text = "its standbys are asynchronous: a failover forgets the last locks".to_owned();
        let is_well = is_alone || !self.text("synchronous_standby_names").is_empty();
        self.hint(is_well, "asynchronous", text, set("synchronous_standby_names", "'*'"));
        let open = self.number("oldest_transaction_seconds").unwrap_or_default();
        let text = format!("a transaction is open for {open} s: locks become slow meanwhile");
        let mend = "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start;";
        self.hint(open <= OPEN_MAX, "long_transaction", text, mend.to_owned());
        let text = "pushes do not arrive, as behind a pooler, and so waiters poll".to_owned();
        let mend = "`?listen=host:port` of the server itself, in the URL".to_owned();
        self.hint(self.facts.gets_pushes, "no_pushes", text, mend);
        let more = self.number("max_connections").unwrap_or_default() * 2.0;
        let mend = format!("ALTER SYSTEM SET max_connections = {more}; and restart the server");
        self.look_at_connections("connections", "max_connections", &mend);
    }
}
