//! The command `acl`: prints the rights that a user needs.

use lockmacro_runtime::inspect::rights;
use serde_json::json;

use crate::args::Feature;
use crate::show::document;
use crate::{Failure, Report};

pub fn print(
    url: Option<&str>,
    pattern: &str,
    features: &[Feature],
    user: &str,
    json: bool,
) -> Result<Report, Failure> {
    if url.is_some_and(|url| url.starts_with("postgres")) {
        let why = "these are rights on Redis: `lockmacro postgres install` prints the GRANTs";
        return Err(why.into());
    }
    let uses: Vec<_> = features.iter().filter_map(|feature| feature.0).collect();
    let rights = rights(pattern, &uses)?;
    let is_odd = |c: char| c.is_whitespace() || c.is_control();
    if user.is_empty() || user.contains(is_odd) {
        return Err("a user's name cannot be empty or have blanks: change `--user`".into());
    }
    let text = if json {
        let rights: Vec<_> = rights.split(' ').collect();
        document(&json!({ "user": user, "rights": rights }))
    } else {
        format!("ACL SETUSER {user} on >password {rights}\n")
    };
    Ok(Report { text, done: true })
}
