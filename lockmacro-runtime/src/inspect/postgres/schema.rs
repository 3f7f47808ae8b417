//! The schema of the locks in a database: its text, and its installation.

use std::time::Duration;

use crate::engine::core::inside_runtime;
use crate::inspect::postgres::query;
use crate::manager::builder::LockManagerBuilder;
use crate::store::postgres::client::url::{Database, check_schema};
use crate::store::postgres::client::values::column;
use crate::store::postgres::schema::{VERSION, install as text};
use crate::store::postgres::store::{Postgres, failed};
use crate::store::remote::budget::{Budget, Retry};
use crate::value::error::LockError;
use crate::value::url::Url;

/// How long an installation waits for the server, and how long it tries to change tables that
/// others use.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
const INSTALL_WITHIN: Duration = Duration::from_secs(60);

/// Returns the SQL that makes the schema of the locks in a PostgreSQL database, with the feature
/// `postgres`: for a migration. `lockmacro postgres print` prints the same.
///
/// ```
/// use lockmacro_runtime::inspect::schema;
///
/// assert!(schema("lm1")?.contains("CREATE SCHEMA lm1;"));
/// # Ok::<(), lockmacro_runtime::LockError>(())
/// ```
///
/// # Errors
/// [`LockError::InvalidSetting`] for a name that a URL could not have as its `schema`.
pub fn schema(name: &str) -> Result<String, LockError> {
    check_schema(name).map(|()| text(name))
}

/// What [`install_schema`] has found and made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstalledSchema {
    /// The name of the schema.
    pub name: String,
    /// Its version before; `None` when there was none.
    pub before: Option<i32>,
    /// Its version now.
    pub version: i32,
}

/// Makes the schema of the locks in the PostgreSQL database of a URL, or brings it to the version
/// of this crate, with the feature `postgres`. While a transaction of others uses a table that has
/// to be changed, this tries again for a minute, and stops the calls of locks for 200 ms each time.
///
/// # Errors
/// - [`LockError::InvalidSetting`] for `schema` when it has other things in it, when it or a part
///   of it belongs to another user than it must, and when a view or a function of yours depends on
///   what an upgrade has to remove, which the text names;
/// - [`LockError::Unavailable`], which names a transaction that still uses a table;
/// - those of [`LockManager::connect`](crate::LockManager::connect), and
///   [`LockError::NoRuntime`] outside of tokio.
pub async fn install_schema(url: &str) -> Result<InstalledSchema, LockError> {
    inside_runtime()?;
    let mut url = Url::parse(url)?;
    // Those of managers do not matter here.
    LockManagerBuilder::new().take_from(&mut url)?;
    let server = Database::of(&url, CONNECT_WITHIN).unwrap_or_else(|| {
        let why = "only a PostgreSQL database has a schema: `postgres://user@host/db`";
        Err(LockError::invalid_url(why))
    })?;
    let name = server.schema.clone();
    let before = install(&Postgres::new(server, CONNECT_WITHIN)).await?;
    Ok(InstalledSchema { name, before, version: before.unwrap_or_default().max(VERSION) })
}

/// Makes the schema, or brings it to this version. Returns the version before.
async fn install(postgres: &Postgres) -> Result<Option<i32>, LockError> {
    let before = |budget, _| async move {
        let present = present(&postgres.pool.servers.schema);
        let rows = query(postgres, &present, budget).await?;
        rows.first().map_or(Ok(None), |row| column(row, 0))
    };
    let before = Retry::new(Budget::within(postgres.timeout)).repeat(before).await;
    let before = before.map_err(failed)?;
    let budget = Budget::new(INSTALL_WITHIN, INSTALL_WITHIN);
    let made = Retry::new(budget).repeat(|budget, _| postgres.install(budget)).await;
    made.map_err(failed).map(|()| before)
}

/// The version of the schema, read and not called; no row without one.
fn present(schema: &str) -> String {
    format!(
        "SELECT substring(prosrc FROM '^SELECT ([0-9]+)$')::int FROM pg_catalog.pg_proc
            WHERE pronamespace = pg_catalog.to_regnamespace('{schema}')::oid
                AND proname = 'version'"
    )
}
