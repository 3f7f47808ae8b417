//! The rights that a user needs, as a command for the server.

use lockmacro_runtime::inspect::rights;
use serde_json::json;

use crate::args::Feature;
use crate::show::document;
use crate::{Report, Trouble};

pub fn print(
    pattern: &str,
    features: &[Feature],
    user: &str,
    json: bool,
) -> Result<Report, Trouble> {
    let uses: Vec<_> = features.iter().filter_map(|feature| feature.0).collect();
    let rights = rights(pattern, &uses)?;
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    if user.is_empty() || user.contains(is_odd) {
        return Err("no user is called so: give `--user` a name without blanks".into());
    }
    let text = if json {
        let rights: Vec<_> = rights.split(' ').collect();
        document(&json!({ "user": user, "rights": rights }))
    } else {
        format!("ACL SETUSER {user} on >password {rights}\n")
    };
    Ok(Report { text, done: true })
}
