//! The facts that a database tells of itself, for somebody who looks for the cause of a trouble.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Row;

use super::connection::PUSHES;
use super::store::Postgres;
use super::values::column;
use crate::store::calls::budget::Budget;
use crate::store::calls::error::CallError;
use crate::store::inspection::clock_facts;
use crate::value::inspection::ServerFacts;

/// The settings that matter to locks, the use of the connections, and what `docs/postgres.md` says
/// about old versions of rows.
const SETTINGS: &str = "
    SELECT name, setting FROM pg_settings WHERE name IN ('autovacuum', 'fsync', 'full_page_writes',
      'max_connections', 'server_version', 'synchronous_standby_names')
    UNION ALL SELECT 'connections', count(*)::text FROM pg_stat_activity
      WHERE backend_type = 'client backend'
    UNION ALL SELECT 'replicas', count(*)::text FROM pg_stat_replication
    UNION ALL SELECT 'user', current_user
    UNION ALL SELECT 'oldest_transaction_seconds',
      coalesce(extract(epoch FROM max(clock_timestamp() - xact_start))::int, 0)::text
      FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";

impl Postgres {
    pub(super) async fn facts(&self) -> Result<ServerFacts, CallError> {
        let budget = Budget::brief(self.timeout);
        self.state(budget).await?;
        let time = async || {
            let now = "SELECT extract(epoch FROM clock_timestamp())::float8";
            let rows = self.pool.query(PUSHES, now, &[], Budget::brief(self.timeout)).await?;
            let seconds: f64 = rows.first().map(|row| column(row, 0)).transpose()?.unwrap_or(0.0);
            Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
        };
        let clock = clock_facts(time).await;
        let rows = self.pool.query(PUSHES, SETTINGS, &[], Budget::brief(self.timeout)).await?;
        let pair = |row: &Row| Ok((column(row, 0)?, column(row, 1)?));
        let mut settings = rows.iter().map(pair).collect::<Result<BTreeMap<_, _>, CallError>>()?;
        Ok(ServerFacts {
            user: settings.remove("user"),
            missing_rights: Some(Vec::new()),
            gets_pushes: self.pool.listen(Budget::brief(self.timeout).until).await.unwrap_or(false),
            settings,
            ..clock
        })
    }
}
