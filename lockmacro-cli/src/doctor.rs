//! The command `doctor`: what is wrong with the servers of a URL, and what mends it.

mod postgres;
mod redis;

use std::collections::BTreeMap;
use std::time::Duration;

use lockmacro_runtime::inspect::{InspectedServer, ServerFacts};
use lockmacro_runtime::{LockError, LockKey, LockManager};
use serde_json::{Value, json};

use crate::show::{document, plain, table, time};
use crate::{Failure, Report};

/// The version of the JSON document. A new field does not change it.
const FORMAT: u32 = 1;
/// The clocks of all machines may differ by this share in a second.
const RATE_MAX: f64 = 0.005;
/// A date that is wrong by more than this is reported.
const AHEAD_MAX: f64 = 60.0;
/// A longer round trip is reported: a lock takes two.
const FAR: Duration = Duration::from_millis(50);
/// The share of its connections from which on a server is short of them.
const FULL: f64 = 0.8;

/// What is wrong with a server.
struct Finding {
    server: String,
    /// Whether locks fail by it, or may be granted twice. Otherwise it is a hint.
    is_problem: bool,
    code: &'static str,
    text: String,
    /// A command, or a setting of the URL.
    mend: String,
}

/// The findings about one server.
struct Patient<'a> {
    url: &'a str,
    server: &'a str,
    facts: &'a ServerFacts,
    found: Vec<Finding>,
}

impl Patient<'_> {
    /// Adds a problem, unless `is_well`.
    fn problem(&mut self, is_well: bool, code: &'static str, text: String, mend: String) {
        self.add(is_well, true, code, text, mend);
    }

    /// Adds a hint, unless `is_well`.
    fn hint(&mut self, is_well: bool, code: &'static str, text: String, mend: String) {
        self.add(is_well, false, code, text, mend);
    }

    fn add(
        &mut self,
        is_well: bool,
        is_problem: bool,
        code: &'static str,
        text: String,
        mend: String,
    ) {
        if !is_well {
            self.found.push(Finding {
                server: self.server.to_owned(),
                is_problem,
                code,
                text,
                mend,
            });
        }
    }

    fn text(&self, name: &str) -> &str {
        self.facts.settings.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.text(name).parse().ok()
    }

    /// What holds for every kind of server.
    fn look_from_here(&mut self) {
        let ServerFacts { round_trip, clock_ahead, clock_rate, .. } = *self.facts;
        let rate = clock_rate.unwrap_or(1.0);
        self.problem(
            (rate - 1.0).abs() <= RATE_MAX,
            "clock_rate",
            format!("its clock counts {rate:.3} s in a second of this machine: leases do not hold"),
            "chronyc tracking".to_owned(),
        );
        let ahead = clock_ahead.unwrap_or_default();
        let wrong = Some(Duration::try_from_secs_f64(ahead.abs()).unwrap_or_default());
        let where_to = if ahead > 0.0 { "ahead of" } else { "behind" };
        self.hint(
            ahead.abs() <= AHEAD_MAX,
            "clock_ahead",
            format!("its date is {} {where_to} this machine's, and fences follow it", time(wrong)),
            "chronyc tracking".to_owned(),
        );
        self.hint(
            round_trip <= FAR,
            "round_trip",
            format!("it is {} away, and a lock takes two round trips", milliseconds(round_trip)),
            "run the program near its lock server".to_owned(),
        );
        let host = self.server.rsplit_once(':').map_or(self.server, |(host, _)| host);
        let is_here = ["/", "127.", "localhost", "[::1]"].iter().any(|it| host.starts_with(it));
        let scheme = self.url.split("://").next().unwrap_or_default();
        let is_encrypted = scheme.starts_with("rediss") || scheme == "redlocks";
        let has_tls =
            is_encrypted || ["sslmode=", "cacert="].iter().any(|it| self.url.contains(it));
        self.hint(
            is_here || has_tls,
            "not_encrypted",
            "passwords and the tokens of locks cross the network in the clear".to_owned(),
            "`rediss://…` in the URL, or `sslmode=require` for PostgreSQL".to_owned(),
        );
    }

    /// Connections in use, of those that the server has.
    fn look_at_connections(&mut self, used: &str, most: &str, mend: &str) {
        let (used, most) = (self.number(used), self.number(most));
        let (Some(used), Some(most)) = (used, most) else { return };
        self.hint(
            used <= most * FULL,
            "connections",
            format!("it has {used} of at most {most} connections, and then refuses programs"),
            mend.to_owned(),
        );
    }
}

/// Examines the servers of a URL. A manager need not be able to connect to them.
pub async fn examine(url: &str, key: Option<String>, json: bool) -> Result<Report, Failure> {
    let manager = LockManager::builder().lazy().connect(url).await?;
    let key = key.map(LockKey::from);
    let servers = manager.inspect_servers(key.as_ref()).await;
    if servers.is_empty() {
        return Err("`memory://` has no server to examine".into());
    }
    let mut found: Vec<_> = servers.iter().flat_map(|it| findings(url, it)).collect();
    let votes = servers
        .iter()
        .filter(|it| it.facts.as_ref().is_ok_and(|facts| !facts.settings.contains_key("no_vote")));
    let votes = votes.count();
    if url.starts_with("redlock") && votes <= servers.len() / 2 {
        let text = format!(
            "only {votes} of {} nodes vote, which is no majority: no lock is granted",
            servers.len()
        );
        let mend = "start the nodes that do not answer".to_owned();
        found.push(Finding {
            server: "redlock".to_owned(),
            is_problem: true,
            code: "no_majority",
            text,
            mend,
        });
    }
    found.sort_by_key(|finding| !finding.is_problem);
    let done = !found.iter().any(|finding| finding.is_problem);
    let text = if json { as_json(&servers, &found, done) } else { as_text(&servers, &found) };
    Ok(Report { text, done })
}

fn findings(url: &str, seen: &InspectedServer) -> Vec<Finding> {
    let facts = match &seen.facts {
        Ok(facts) => facts,
        Err(error) => return vec![unreachable(url, &seen.server, error)],
    };
    let mut patient = Patient { url, server: &seen.server, facts, found: Vec::new() };
    match url.starts_with("postgres") {
        true => patient.look_at_postgres(),
        false => patient.look_at_redis(),
    }
    patient.look_from_here();
    patient.found
}

/// A server that did not answer the first questions.
fn unreachable(url: &str, server: &str, error: &LockError) -> Finding {
    let mend = match error {
        LockError::Authentication { .. } => "`user:password@` in the URL".to_owned(),
        LockError::AccessDenied { .. } if url.starts_with("postgres") => {
            "GRANT USAGE ON SCHEMA lm1 TO app; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lm1 TO app;"
                .to_owned()
        }
        LockError::AccessDenied { .. } => {
            "ACL SETUSER, with the output of `lockmacro acl`".to_owned()
        }
        LockError::InvalidSetting { setting: "schema", .. } => {
            "lockmacro postgres install".to_owned()
        }
        LockError::Unavailable { reason, .. } => match reason.to_string().as_str() {
            "busy with a script" => format!("{} SCRIPT KILL", redis::cli(server)),
            "a read-only replica" => "the primary in the URL".to_owned(),
            "loading its data" => "wait until it has loaded its data".to_owned(),
            "connection refused" | "disconnected" | "no answer in time" => {
                "start the server, or correct its host and port in the URL".to_owned()
            }
            _ => "another server in the URL".to_owned(),
        },
        _ => "correct the URL".to_owned(),
    };
    Finding {
        server: server.to_owned(),
        is_problem: true,
        code: "unreachable",
        text: error.to_string(),
        mend,
    }
}

fn as_text(servers: &[InspectedServer], found: &[Finding]) -> String {
    let row = |seen: &InspectedServer| {
        let unknown = ServerFacts::default();
        let facts = seen.facts.as_ref().unwrap_or(&unknown);
        let setting = |name: &str| facts.settings.get(name).map_or("-", String::as_str);
        let clients = match (setting("connected_clients"), setting("connections")) {
            ("-", own) => format!("{own} of {}", setting("max_connections")),
            (own, _) => format!("{own} of {}", setting("maxclients")),
        };
        let known = seen.facts.is_ok();
        let ahead = facts
            .clock_ahead
            .map(|ahead| format!("{:+.2} s", (ahead * 100.0).round() / 100.0 + 0.0));
        let ahead = ahead.unwrap_or_else(|| "-".to_owned());
        [
            seen.server.clone(),
            version(&facts.settings),
            role(&facts.settings).to_owned(),
            if known { milliseconds(facts.round_trip) } else { "-".to_owned() },
            ahead,
            if known { clients } else { "-".to_owned() },
        ]
    };
    let rows: Vec<_> = servers.iter().map(row).collect();
    let mut text = table(["SERVER", "VERSION", "ROLE", "AWAY", "CLOCK", "CLIENTS"], &rows);
    for Finding { server, is_problem, text: finding, mend, .. } in found {
        let kind = if *is_problem { "problem" } else { "hint" };
        text += &format!("\n{kind}: {}: {}\n    {}\n", plain(server), plain(finding), plain(mend));
    }
    let problems = found.iter().filter(|finding| finding.is_problem).count();
    text + &match problems {
        0 => "\nno problem was found\n".to_owned(),
        1 => "\n1 problem was found\n".to_owned(),
        _ => format!("\n{problems} problems were found\n"),
    }
}

fn as_json(servers: &[InspectedServer], found: &[Finding], is_healthy: bool) -> String {
    let server = |seen: &InspectedServer| {
        let facts = seen.facts.as_ref().ok();
        json!({
            "server": seen.server,
            "version": facts.map(|facts| version(&facts.settings)),
            "role": facts.map(|facts| role(&facts.settings)),
            "error": seen.facts.as_ref().err().map(ToString::to_string),
            "round_trip_ms": facts.map(|facts| facts.round_trip.as_secs_f64() * 1e3),
            "clock_ahead_s": facts.and_then(|facts| facts.clock_ahead),
            "clock_rate": facts.and_then(|facts| facts.clock_rate),
            "user": facts.and_then(|facts| facts.user.as_deref()),
            "missing_rights": facts.and_then(|facts| facts.missing_rights.as_deref()),
            "gets_pushes": facts.map(|facts| facts.gets_pushes),
        })
    };
    let finding = |finding: &Finding| {
        let Finding { server, is_problem, code, text, mend } = finding;
        let level = if *is_problem { "problem" } else { "hint" };
        json!({ "server": server, "level": level, "code": code, "text": text, "mend": mend })
    };
    let (servers, found): (Value, Value) =
        (servers.iter().map(server).collect(), found.iter().map(finding).collect());
    document(
        &json!({ "format": FORMAT, "healthy": is_healthy, "servers": servers, "findings": found }),
    )
}

fn version(settings: &BTreeMap<String, String>) -> String {
    let named = [
        ("valkey_version", "Valkey"),
        ("redis_version", "Redis"),
        ("server_version", "PostgreSQL"),
    ];
    let known =
        named.iter().find_map(|(name, kind)| Some(format!("{kind} {}", settings.get(*name)?)));
    known.unwrap_or_else(|| "-".to_owned())
}

/// A PostgreSQL server that is examined is no standby.
fn role(settings: &BTreeMap<String, String>) -> &str {
    match settings.get("role").map(String::as_str) {
        Some("slave") => "replica",
        Some(_) => "primary",
        None if settings.contains_key("server_version") => "primary",
        None => "-",
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
