//! The facts that a database tells of itself, for somebody who looks for the cause of a trouble.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio_postgres::Row;

use crate::inspect::clock_facts::clock_facts;
use crate::inspect::found::{InspectedServer, ServerFacts};
use crate::inspect::postgres::query;
use crate::store::postgres::client::connection::PUSHES;
use crate::store::postgres::client::values::column;
use crate::store::postgres::schema::{ROUTINES, TABLES, made};
use crate::store::postgres::store::{Postgres, failed};
use crate::store::remote::budget::Budget;
use crate::store::remote::error::RemoteError;
use crate::sys::time::Instant;

/// The settings that matter to locks, the use of the connections, and what the guide says about
/// old versions of rows. What the user may not see of others is not there.
const SETTINGS: &str = "
    SELECT name, setting FROM pg_settings WHERE name IN ('autovacuum', 'fsync', 'full_page_writes',
      'max_connections', 'server_encoding', 'server_version', 'synchronous_standby_names')
    UNION ALL SELECT 'connections', count(*)::text FROM pg_stat_activity
      WHERE backend_type = 'client backend' HAVING pg_has_role('pg_read_all_stats', 'USAGE')
    UNION ALL SELECT 'connections_allowed', least(
        CASE WHEN NOT rolsuper THEN nullif(rolconnlimit, -1) END,
        CASE WHEN NOT rolsuper THEN nullif(datconnlimit, -1) END,
        current_setting('max_connections')::int - CASE WHEN NOT rolsuper THEN (
          SELECT sum(setting::int) FROM pg_settings
            WHERE name IN ('reserved_connections', 'superuser_reserved_connections')
        ) ELSE 0 END)::text
      FROM pg_roles, pg_database WHERE rolname = current_user AND datname = current_database()
    UNION ALL SELECT 'replicas', count(*)::text FROM pg_stat_replication
    UNION ALL SELECT 'user', current_user
    UNION ALL SELECT 'oldest_transaction_seconds',
      coalesce(extract(epoch FROM max(clock_timestamp() - xact_start))::int, 0)::text
      FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
      HAVING pg_has_role('pg_read_all_stats', 'USAGE')";

/// The database, and what it tells.
pub(crate) async fn of(postgres: &Postgres) -> InspectedServer {
    let facts = facts(postgres).await.map_err(failed);
    InspectedServer { server: postgres.pool.name(), facts }
}

async fn facts(postgres: &Postgres) -> Result<ServerFacts, RemoteError> {
    let budget = Budget::brief(postgres.timeout);
    postgres.state(budget).await?;
    let time = async || {
        let now = "SELECT extract(epoch FROM clock_timestamp())::float8";
        let row = postgres.pool.query_one(PUSHES, now, Budget::brief(postgres.timeout)).await?;
        let seconds: f64 = column(&row, 0)?;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    };
    let clock = clock_facts(time).await;
    let rows = query(postgres, SETTINGS, Budget::brief(postgres.timeout)).await?;
    let pair = |row: &Row| Ok((column(row, 0)?, column(row, 1)?));
    let mut settings = rows.iter().map(pair).collect::<Result<BTreeMap<_, _>, RemoteError>>()?;
    let schema = &postgres.pool.servers.schema;
    for (name, parts) in [("foreign_parts", foreign_parts(schema)), ("altered", altered(schema))] {
        let row = postgres.pool.query_one(PUSHES, &parts, Budget::brief(postgres.timeout)).await?;
        settings.insert(name.to_owned(), column(&row, 0)?);
    }
    Ok(ServerFacts {
        user: settings.remove("user"),
        missing_rights: Some(Vec::new()),
        // Longer than for other facts: where pushes do not arrive, that is waited for.
        gets_pushes: postgres.pool.listen(Instant::now() + postgres.timeout).await?,
        settings,
        ..clock
    })
}

/// What has another owner than the schema, if anything has: see `install.sql`.
fn foreign_parts(schema: &str) -> String {
    let routines = made(ROUTINES);
    let tables = made(TABLES);
    format!(
        "SELECT coalesce(string_agg(thing, ', '), '') FROM (
            SELECT p.oid::regprocedure::text FROM pg_catalog.pg_proc p, pg_catalog.pg_namespace n
                WHERE n.oid = pronamespace AND nspname = '{schema}' AND proowner <> nspowner
                    AND proname = ANY ('{{{routines}}}')
            UNION ALL SELECT c.oid::regclass::text FROM pg_catalog.pg_class c, pg_catalog.pg_namespace n
                WHERE n.oid = relnamespace AND nspname = '{schema}' AND relowner <> nspowner
                    AND relname = ANY ('{{{tables}}}')
        ) x (thing)"
    )
}

/// The statements that undo what somebody has altered in the procedures of `schema.sql`. One with a
/// setting, or with the rights of its owner, cannot end a transaction. The check of a fence tries
/// just that to find out whether it is in one, and so would take every call for one.
fn altered(schema: &str) -> String {
    let procedures = made(&["PROCEDURE"]);
    format!(
        "SELECT coalesce(string_agg(
            format('ALTER PROCEDURE %s SECURITY INVOKER RESET ALL;', oid::regprocedure), ' '
        ), '') FROM pg_catalog.pg_proc
            WHERE pronamespace = '{schema}'::regnamespace::oid
                AND proname = ANY ('{{{procedures}}}') AND (proconfig IS NOT NULL OR prosecdef)"
    )
}
