//! The commands for the schema of a PostgreSQL database.

use lockmacro_runtime::inspect::schema;
use lockmacro_runtime::{LockError, LockManager};
use serde_json::json;

use crate::show::document;
use crate::{Failure, Report};

pub fn print(name: &str, json: bool) -> Result<Report, Failure> {
    let sql = schema(name)?;
    let text = if json { document(&json!({ "schema": name, "sql": sql })) } else { sql };
    Ok(Report { text, done: true })
}

pub async fn install(url: &str, json: bool) -> Result<Report, Failure> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err("only a PostgreSQL database has a schema: `postgres://user@host/db`".into());
    }
    // With it the first attempt would not tell.
    let url = &url.replace("?install=1", "?").replace("&install=1", "&");
    let is_missing = match LockManager::connect(url).await {
        // Also of another version, which the second attempt does not replace.
        Err(LockError::InvalidSetting { setting: "schema", .. }) => true,
        connected => connected.map(|_| false)?,
    };
    if is_missing {
        let sign = if url.contains('?') { '&' } else { '?' };
        LockManager::connect(&format!("{url}{sign}install=1")).await?;
    }
    let mut settings = url.split(['?', '&']).skip(1);
    let schema = settings.find_map(|setting| setting.strip_prefix("schema=")).unwrap_or("lm1");
    let grants = [
        format!("GRANT USAGE ON SCHEMA {schema} TO app;"),
        format!("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO app;"),
    ];
    let text = if json {
        document(&json!({ "schema": schema, "installed": is_missing, "grants": grants }))
    } else {
        let done = if is_missing { "was made" } else { "was there already" };
        format!(
            "-- The schema {schema} {done}. For the user of your programs:\n{}\n",
            grants.join("\n")
        )
    };
    Ok(Report { text, done: true })
}
