//! The commands for the schema of a PostgreSQL database.

use lockmacro_runtime::inspect::{InstalledSchema, install_schema, schema};
use serde_json::json;

use crate::show::document;
use crate::{Failure, Report};

pub fn print(name: &str, json: bool) -> Result<Report, Failure> {
    let sql = schema(name)?;
    let text = if json { document(&json!({ "schema": name, "sql": sql })) } else { sql };
    Ok(Report { text, done: true })
}

pub async fn install(url: &str, json: bool) -> Result<Report, Failure> {
    let InstalledSchema { name, before, version, .. } = install_schema(url).await?;
    let grants = [
        format!("GRANT USAGE ON SCHEMA {name} TO app;"),
        format!("GRANT EXECUTE ON ALL ROUTINES IN SCHEMA {name} TO app;"),
    ];
    let upgraded_from = before.filter(|before| *before < version);
    let text = if json {
        let installed = before.is_none() || upgraded_from.is_some();
        document(&json!({
            "schema": name, "version": version, "installed": installed,
            "upgraded_from": upgraded_from, "grants": grants,
        }))
    } else {
        let done = match (before, upgraded_from) {
            (None, _) => "was made".to_owned(),
            (_, Some(before)) => format!("was upgraded from version {before} to {version}"),
            (Some(_), None) => "was there already".to_owned(),
        };
        let grants = grants.join("\n");
        format!("-- The schema {name} {done}. For the user of your programs:\n{grants}\n")
    };
    Ok(Report { text, done: true })
}
