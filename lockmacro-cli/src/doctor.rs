//! The command `doctor`: what is wrong with the servers of a URL, and what fixes it.

mod postgres;
mod redis;

use std::collections::BTreeMap;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use lockmacro_runtime::UnavailableReason as Reason;
use lockmacro_runtime::inspect::{InspectedServer, ServerFacts};
use lockmacro_runtime::{LockError, LockKey, LockManager};
use serde_json::{Value, json};

use crate::show::{document, plain, table, time};
use crate::{Failure, Report, SCHEMA};

/// The version of the JSON document. A new field does not change it.
const FORMAT: u32 = 1;
/// The clocks of all machines may differ by this share in a second.
const RATE_MAX: f64 = 0.005;
/// A date that is wrong by more than this is reported.
const AHEAD_MAX: f64 = 60.0;
/// A longer round trip is reported: a lock takes two.
const FAR: Duration = Duration::from_millis(50);
/// What fixes a server that is down.
const START: &str = "start the server, or correct its host and port in the URL";
/// How long a server that does not answer may take to accept a connection.
const ACCEPTS_WITHIN: Duration = Duration::from_secs(1);
/// The share of its connections from which on a server is short of them.
const FULL: f64 = 0.8;

/// A problem of a server, or a hint.
struct Finding {
    /// Whether locks fail by it, or may be granted twice. Otherwise it is a hint.
    is_problem: bool,
    code: &'static str,
    text: String,
    /// A command for a shell, or what to change.
    fix: String,
}

impl Finding {
    fn new(is_problem: bool, code: &'static str, text: impl ToString, fix: impl ToString) -> Self {
        Self { is_problem, code, text: text.to_string(), fix: fix.to_string() }
    }
}

/// A server, and what was found.
struct Patient<'a> {
    url: &'a str,
    server: &'a str,
    facts: &'a ServerFacts,
    found: Vec<Finding>,
}

impl<'a> Patient<'a> {
    fn problem(&mut self, code: &'static str, text: impl ToString, fix: impl ToString) {
        self.found.push(Finding::new(true, code, text, fix));
    }

    fn hint(&mut self, code: &'static str, text: impl ToString, fix: impl ToString) {
        self.found.push(Finding::new(false, code, text, fix));
    }

    fn text(&self, name: &str) -> &'a str {
        self.facts.settings.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or_default()
    }

    /// Looks for the findings that any kind of server may have.
    fn look_from_here(&mut self) {
        let ServerFacts { round_trip, clock_ahead, clock_rate, .. } = *self.facts;
        let rate = clock_rate.unwrap_or(1.0);
        if (rate - 1.0).abs() > RATE_MAX {
            let text = format_args!("its clock counts {rate:.3} s in a second: leases do not hold");
            self.problem("clock_rate", text, "chronyc tracking");
        }
        let ahead = clock_ahead.unwrap_or_default();
        if ahead.abs() > AHEAD_MAX {
            let wrong = time(Duration::try_from_secs_f64(ahead.abs()).ok());
            let than = if ahead > 0.0 { "ahead of" } else { "behind" };
            let text = format_args!("its date is {wrong} {than} ours, and fences may follow it");
            self.hint("clock_ahead", text, "chronyc tracking");
        }
        if round_trip > FAR {
            let away = milliseconds(round_trip);
            let text = format_args!("it is {away} away, and a lock takes two round trips");
            self.hint("round_trip", text, "run the program near its lock server");
        }
        let here = ["/", "127.", "localhost", "[::1]"];
        if !is_encrypted(self.url) && !here.iter().any(|it| self.server.starts_with(it)) {
            let text = "passwords and the tokens of locks cross the network in the clear";
            let fix = "`rediss://…` in the URL, or `sslmode=require` for PostgreSQL";
            self.hint("not_encrypted", text, fix);
        }
    }

    fn look_at_connections(&mut self, used: &str, most: &str, fix: impl ToString) {
        let used = self.number(used);
        let most = self.number(most);
        if most > 0.0 && used > most * FULL {
            let text = format_args!("it has {used} of its {most} connections, and refuses more");
            self.hint("connections", text, fix);
        }
    }
}

/// Whether the connections to the servers of a URL are encrypted.
fn is_encrypted(url: &str) -> bool {
    let schemes = ["rediss", "valkeys", "redlocks"];
    let settings = ["sslmode=require", "sslmode=verify", "cert="];
    schemes.iter().any(|it| url.starts_with(it)) || settings.iter().any(|it| url.contains(it))
}

/// Examines the servers of a URL. A manager need not be able to connect to them.
pub async fn examine(url: &str, key: Option<String>, json: bool) -> Result<Report, Failure> {
    let manager = LockManager::builder().lazy().connect(url).await?;
    let key = key.map(LockKey::from);
    let servers = manager.inspector().servers(key.as_ref()).await?;
    if servers.is_empty() {
        return Err("`memory://` has no server to examine".into());
    }
    let of = |seen: &InspectedServer| {
        let server = seen.server.clone();
        findings(url, seen).into_iter().map(move |finding| (server.clone(), finding))
    };
    let mut found: Vec<_> = servers.iter().flat_map(of).collect();
    let votes = |seen: &&InspectedServer| matches!(&seen.facts, Ok(it) if it.no_vote.is_none());
    let votes = servers.iter().filter(votes).count();
    let nodes = servers.len();
    let answering = servers.iter().filter(|seen| seen.facts.is_ok()).count();
    if url.starts_with("redlock") && votes > nodes / 2 {
        // The others grant the locks.
        let unreachable = found.iter_mut().filter(|(_, finding)| finding.code == "unreachable");
        unreachable.for_each(|(_, finding)| finding.is_problem = false);
    } else if url.starts_with("redlock") {
        let text = format_args!("only {votes} of {nodes} nodes vote: no lock is granted");
        let fix = if found.iter().any(|(_, finding)| finding.code == "one_server") {
            redis::ONCE
        } else if answering > nodes / 2 {
            "wait until more of its nodes vote: each says why it does not"
        } else {
            "start the nodes that do not answer"
        };
        found.push(("redlock".to_owned(), Finding::new(true, "no_majority", text, fix)));
    }
    found.sort_by_key(|(_, finding)| !finding.is_problem);
    let done = !found.iter().any(|(_, finding)| finding.is_problem);
    let text = if json { as_json(&servers, &found, done) } else { as_text(&servers, &found) };
    Ok(Report { text, done })
}

fn findings(url: &str, seen: &InspectedServer) -> Vec<Finding> {
    let facts = match &seen.facts {
        Ok(facts) => facts,
        Err(error) => return vec![unreachable(url, &seen.server, error)],
    };
    let mut patient = Patient { url, server: &seen.server, facts, found: Vec::new() };
    if url.starts_with("postgres") {
        patient.look_at_postgres();
    } else {
        patient.look_at_redis();
    }
    patient.look_from_here();
    patient.found
}

/// A server that did not answer the first questions.
fn unreachable(url: &str, server: &str, error: &LockError) -> Finding {
    let cli = redis::cli(url, server);
    let fix = match error {
        LockError::Authentication { .. } => "`user:password@` in the URL",
        LockError::AccessDenied { .. } if url.starts_with("postgres") => {
            "the GRANT that it names, as the owner of the schema or the database"
        }
        LockError::AccessDenied { .. } => "the line that `lockmacro acl` prints, for this user",
        LockError::InvalidSetting { setting: SCHEMA, .. } => &*postgres::install(url),
        LockError::Unavailable { reason, .. } => match reason {
            Reason::Timeout if accepts(server) => {
                "it accepts connections and does not answer: see its log and disk, or CLIENT PAUSE"
            }
            Reason::Refused | Reason::Disconnected | Reason::Timeout => START,
            Reason::BusyScript => &*format!("{cli} SCRIPT KILL"),
            Reason::Loading => "wait until it has loaded its data",
            Reason::ReadOnly if error.to_string().contains("disk is full") => {
                "free space on its disk, and reset default_transaction_read_only"
            }
            Reason::ReadOnly | Reason::PrimaryDown => "the primary in the URL",
            Reason::ClusterDown => &*format!("{cli} CLUSTER INFO"),
            Reason::Protocol => "a server with Redis 6.2 or later, or Valkey, in the URL",
            Reason::Local => "raise the limits of this machine or process",
            Reason::Tls => "`cacert=` in the URL, or another certificate of the server",
            Reason::ConnectionLimit => "raise max_connections, maxclients or the CONNECTION LIMIT",
            _ => "see the log of the server",
        },
        _ => "correct the URL",
    };
    Finding::new(true, "unreachable", error, fix)
}

/// Whether a server accepts connections. A socket that does not is no timeout.
fn accepts(server: &str) -> bool {
    let opens = |at| TcpStream::connect_timeout(&at, ACCEPTS_WITHIN).is_ok();
    server.starts_with('/') || server.to_socket_addrs().is_ok_and(|mut all| all.any(opens))
}

fn as_text(servers: &[InspectedServer], found: &[(String, Finding)]) -> String {
    let unknown = ServerFacts::default();
    let row = |seen: &InspectedServer| {
        let facts = seen.facts.as_ref().unwrap_or(&unknown);
        let setting = |name| facts.settings.get(name);
        let of = |used, most| Some(format!("{} of {}", setting(used)?, setting(most)?));
        let clients = of("connected_clients", "maxclients");
        let clients = clients.or_else(|| of("connections", "max_connections"));
        // Without the sign of zero.
        let seconds = |ahead: f64| format!("{:+.2} s", (ahead * 100.0).round() / 100.0 + 0.0);
        [
            seen.server.clone(),
            version(&facts.settings),
            role(&facts.settings).to_owned(),
            seen.facts.as_ref().map_or("-".to_owned(), |facts| milliseconds(facts.round_trip)),
            facts.clock_ahead.map_or("-".to_owned(), seconds),
            clients.unwrap_or_else(|| "-".to_owned()),
        ]
    };
    let rows: Vec<_> = servers.iter().map(row).collect();
    let mut text = table(["SERVER", "VERSION", "ROLE", "AWAY", "CLOCK", "CLIENTS"], &rows);
    for (server, Finding { is_problem, text: finding, fix, .. }) in found {
        let kind = if *is_problem { "problem" } else { "hint" };
        text += &format!("\n{kind}: {}: {}\n    {}\n", plain(server), plain(finding), plain(fix));
    }
    let problems = found.iter().filter(|(_, finding)| finding.is_problem).count();
    text + &match problems {
        0 => "\nno problem was found\n".to_owned(),
        1 => "\n1 problem was found\n".to_owned(),
        _ => format!("\n{problems} problems were found\n"),
    }
}

fn as_json(servers: &[InspectedServer], found: &[(String, Finding)], is_healthy: bool) -> String {
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
    let finding = |(server, finding): &(String, Finding)| {
        let Finding { is_problem, code, text, fix } = finding;
        let level = if *is_problem { "problem" } else { "hint" };
        json!({ "server": server, "level": level, "code": code, "text": text, "fix": fix })
    };
    let servers: Value = servers.iter().map(server).collect();
    let found: Value = found.iter().map(finding).collect();
    document(&json!({
        "format": FORMAT, "healthy": is_healthy, "servers": servers, "findings": found,
    }))
}

fn version(settings: &BTreeMap<String, String>) -> String {
    let kinds = [
        ("valkey_version", "Valkey"),
        ("redis_version", "Redis"),
        ("server_version", "PostgreSQL"),
    ];
    let known = |(name, kind): &(&str, _)| Some(format!("{kind} {}", settings.get(*name)?));
    kinds.iter().find_map(known).unwrap_or_else(|| "-".to_owned())
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
