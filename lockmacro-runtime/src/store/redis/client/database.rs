//! The database of a URL, and how many the server has.

use std::time::Duration;

use redis::{AsyncConnectionConfig, ConnectionAddr, Value, cmd};
use tokio::time::timeout;

use crate::store::redis::client::error::{CallError, no_database};
use crate::store::redis::client::settings::Settings;
use crate::store::redis::client::stream;

/// Longest time to ask how many databases a server has.
const ASKING: Duration = Duration::from_millis(200);

/// The error for a database that the server does not have, with the number of those that it has
/// where the user may ask for it.
pub(crate) async fn not_there(settings: &Settings, at: &ConnectionAddr, text: String) -> CallError {
    let db = settings.login.db();
    let count = timeout(ASKING, databases(settings, at)).await.ok().flatten();
    no_database(match count {
        Some(count) => format!(
            "the server {at} has {count} databases, from 0 on, and no database {db}: choose \
             another, or raise its `databases`"
        ),
        None => format!("the server {at} has no database {db} ({text}): choose another"),
    })
}

async fn databases(settings: &Settings, at: &ConnectionAddr) -> Option<String> {
    let login = settings.login.clone().set_db(0);
    let client = Settings { login, ..settings.clone() }.client(at).ok()?;
    let opened = stream::connection(&client, &AsyncConnectionConfig::new()).await;
    let mut command = cmd("CONFIG");
    command.arg("GET").arg("databases");
    let reply = opened.ok()?.send_packed_command(&command).await.ok()?;
    let count = match reply {
        Value::Array(parts) => parts.into_iter().nth(1),
        Value::Map(parts) => parts.into_iter().next().map(|(_, count)| count),
        _ => None,
    };
    match count? {
        Value::BulkString(count) => String::from_utf8(count).ok(),
        _ => None,
    }
}
