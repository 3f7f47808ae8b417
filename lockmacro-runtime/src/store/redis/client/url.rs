//! Parsing a URL: the addresses of the servers, the login, and the settings.

use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use crate::store::redis::client::replicas::ReplicaAcks;
use crate::store::redis::client::settings::{FORM, Settings, tcp, unreadable};
use crate::store::redis::client::tls::Files;
use crate::value::duration::duration;
use crate::value::error::LockError;
use crate::value::fence::{RETENTION_MAX, RETENTION_MIN};

const SENTINEL_FORM: &str =
    "it is not of the form `redis-sentinel://user:password@host1,host2:port,host3/primary/db`";
/// For a user or password that a `?` has cut in two.
pub(crate) const UNESCAPED: &str =
    "it has a `?` before its last `@`, which is written `%3F` in a password";
const SENTINEL_PORT: u16 = 26379;

/// A parsed URL.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) target: Target,
    pub(crate) settings: Settings,
    /// The replicas that have to acknowledge a lock, if any.
    pub(crate) replicated: Option<ReplicaAcks>,
    /// The retention of fences, if the URL names one.
    pub(crate) fence_retention: Option<Duration>,
}

/// The server to connect to.
#[derive(Clone)]
pub(crate) enum Target {
    At(ConnectionAddr),
    /// The primary that these sentinels name.
    Named(Box<SentinelGroup>),
}

/// The sentinels of one primary and its replicas.
#[derive(Clone)]
pub(crate) struct SentinelGroup {
    pub(crate) at: Vec<ConnectionAddr>,
    /// The name under which the sentinels monitor the primary.
    pub(crate) name: String,
    /// The login at the sentinels.
    pub(crate) settings: Settings,
    /// The time limit for one sentinel.
    pub(crate) budget: Duration,
}

impl fmt::Display for SentinelGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at: Vec<_> = self.at.iter().map(ToString::to_string).collect();
        write!(f, "{} by sentinels {}", self.name, at.join(","))
    }
}

impl Address {
    /// An address from a description of the `redis` crate.
    pub(crate) fn of_server(server: &ConnectionInfo, unsent: Duration) -> Self {
        let login = server.redis_settings().clone().set_skip_set_lib_name();
        let settings = Settings { login, credentials: None, tcp: tcp(unsent), tls: None };
        Self {
            target: Target::At(server.addr().clone()),
            settings,
            replicated: None,
            fence_retention: None,
        }
    }

    /// Parses a URL. Data that the network has not accepted within `unsent` is dropped, on systems
    /// with such a setting.
    pub(crate) fn parse(url: &str, unsent: Duration) -> Result<Self, LockError> {
        if url.contains('#') {
            return Err(LockError::invalid_url(
                "it has a `#` in it, which is written `%23` in a password",
            ));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| LockError::invalid_url(FORM))?;
        let (target, query) = rest.split_once('?').unwrap_or((rest, ""));
        let encrypted = matches!(scheme, "rediss" | "valkeys" | "rediss-sentinel");
        let sentinel = matches!(scheme, "redis-sentinel" | "rediss-sentinel");
        let (mut files, mut others) = (Files::default(), Vec::new());
        let (mut acks, mut acks_within, mut fence_retention) = (None, None, None);
        let mut sentinel_login = RedisConnectionInfo::default().set_skip_set_lib_name();
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            match name {
                "cacert" | "cert" | "key" if encrypted => files.set(name, decoded(value)),
                "sentinel_user" if sentinel => {
                    sentinel_login = sentinel_login.set_username(decoded(value))
                }
                "sentinel_password" if sentinel => {
                    sentinel_login = sentinel_login.set_password(decoded(value))
                }
                "replicated" => acks = Some(value),
                "replicated_timeout" => acks_within = Some(value),
                "fence_retention" => fence_retention = Some(retention(value)?),
                "protocol" => others.push(setting),
                "db" | "user" | "pass" if scheme.ends_with("unix") => others.push(setting),
                // All of this may be the rest of a password with a `?` in it.
                _ if query.contains('@') => return Err(LockError::invalid_url(UNESCAPED)),
                _ => return Err(no_setting(name, scheme)),
            }
        }
        let (others, tcp) = (others.join("&"), tcp(unsent));
        let tls = if encrypted { Some(files.checked()?) } else { None };
        let replicated = ReplicaAcks::read(acks, acks_within)?;
        let settings = |login: RedisConnectionInfo| {
            let (login, tcp, tls) = (login.set_skip_set_lib_name(), tcp.clone(), tls.clone());
            Settings { login, credentials: None, tcp, tls }
        };
        let address = if sentinel {
            let (authority, path) =
                target.split_once('/').ok_or_else(|| LockError::invalid_url(SENTINEL_FORM))?;
            let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
            let (name, db) = path.split_once('/').unwrap_or((path, ""));
            if name.is_empty() {
                return Err(LockError::invalid_url(SENTINEL_FORM));
            }
            let infos = hosts.split(',').map(|host| {
                let host = with_port(host, SENTINEL_PORT);
                info(&format!("redis://{login}@{host}/{db}?{others}"))
                    .map_err(|_| LockError::invalid_url(SENTINEL_FORM))
            });
            let infos = infos.collect::<Result<Vec<_>, _>>()?;
            let twice = |(nth, info): (usize, &ConnectionInfo)| {
                infos[..nth].iter().any(|other| other.addr() == info.addr())
            };
            if infos.iter().enumerate().any(twice) {
                return Err(LockError::invalid_url(
                    "it names a sentinel twice, which would give it two votes",
                ));
            }
            let login = infos.first().map(|info| info.redis_settings().clone());
            let sentinels = SentinelGroup {
                at: infos.iter().map(|info| info.addr().clone()).collect(),
                name: decoded(name),
                settings: settings(sentinel_login),
                budget: unsent / 4,
            };
            let settings = settings(login.unwrap_or_default());
            let target = Target::Named(Box::new(sentinels));
            Self { target, settings, replicated, fence_retention }
        } else {
            let scheme = if encrypted { &scheme[..scheme.len() - 1] } else { scheme };
            let info = info(&format!("{scheme}://{target}?{others}"))?;
            let settings = settings(info.redis_settings().clone());
            let target = Target::At(info.addr().clone());
            Self { target, settings, replicated, fence_retention }
        };
        // Wrong certificate files are reported now, and not at the first connection.
        let some = match &address.target {
            Target::At(at) => Some(at),
            Target::Named(sentinels) => sentinels.at.first(),
        };
        some.map(|at| address.settings.client(at, None)).transpose()?;
        Ok(address)
    }
}

/// A host with its port, or with this default.
fn with_port(host: &str, port: u16) -> String {
    let given = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if given { host.to_owned() } else { format!("{host}:{port}") }
}

fn info(url: &str) -> Result<ConnectionInfo, LockError> {
    url.into_connection_info().map_err(unreadable)
}

/// The error for an unknown setting. Its name is shown only if it cannot be a part of a password.
pub(crate) fn no_setting(name: &str, scheme: &str) -> LockError {
    if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
        return LockError::invalid_url(format!("`{name}` is no setting of `{scheme}://`"));
    }
    LockError::invalid_url(format!("it has what is no setting of `{scheme}://`"))
}

fn retention(value: &str) -> Result<Duration, LockError> {
    let times = RETENTION_MIN..=RETENTION_MAX;
    duration(value).filter(|time| times.contains(time)).ok_or_else(|| {
        LockError::invalid_url(
            "`fence_retention` is not a duration from 1d to 3650d, such as `30d`",
        )
    })
}

/// A percent-decoded value.
fn decoded(value: &str) -> String {
    percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, LockError> {
        Address::parse(url, Duration::from_secs(2))
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn tls_is_refused_without_its_feature_and_the_error_names_the_feature() {
        let error = parse("rediss://localhost").err();
        assert!(error.is_some_and(|error| error.to_string().contains("feature `tls`")));
    }

    #[test]
    fn a_fence_retention_is_read_and_is_at_least_a_day() {
        let read = |value| parse(&format!("redis://localhost?fence_retention={value}"));
        let day = Duration::from_secs(24 * 60 * 60);
        for (value, days) in [("24h", 1), ("1d", 1), ("30d", 30), ("3650d", 3_650)] {
            assert_eq!(read(value).map(|read| read.fence_retention).ok(), Some(Some(day * days)));
        }
        assert_eq!(parse("redis://localhost").map(|read| read.fence_retention).ok(), Some(None));
        for value in ["", "7", "23h", "0d", "3651d", "-1d", "99999999999999999999d"] {
            let error = read(value).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| error.contains("`fence_retention`")), "{value}");
        }
    }

    #[test]
    fn sentinels_are_read_with_their_ports_and_their_password() {
        let url = "redis-sentinel://u:p%40@one,two:7,[::1]/main/3?sentinel_password=w%26";
        let Ok(Address { target: Target::Named(sentinels), settings, .. }) = parse(url) else {
            panic!("not read");
        };
        let at: Vec<_> = sentinels.at.iter().map(ToString::to_string).collect();
        assert_eq!(at, ["one:26379", "two:7", "::1:26379"]);
        assert_eq!(sentinels.name, "main");
        let login = &settings.login;
        assert_eq!((login.username(), login.password(), login.db()), (Some("u"), Some("p@"), 3));
        assert_eq!(sentinels.settings.login.password(), Some("w&"));
    }

    #[test]
    fn an_unknown_setting_is_refused_and_no_password_is_shown() {
        for url in [
            "redis://:hunter2@localhost/?sentinel=hunter2",
            "redis://:hunter2@localhost/?cacert=hunter2",
            "redis://:hunter2@localhost/#insecure",
            "redis://:pa?hunter2@localhost",
            "redis://:pa?sshunter=hunter2@localhost",
            "redis://:pa?ss&hunter2&x@localhost",
            "redis-sentinel://:pa?hunter2@localhost/main",
            "redis://localhost?Hunter2=hunter2",
            "redis://:hunter2@localhost/hunter2",
            "http://:hunter2@localhost",
            ":hunter2@localhost",
        ] {
            let error = parse(url).err().map(|error| error.to_string());
            assert!(error.is_some_and(|error| !error.contains("hunter2")), "{url}");
        }
        assert!(parse("redis://localhost/3?protocol=resp3").is_ok());
        assert!(parse("redis-sentinel://:hunter2@one,two").is_err());
        assert!(parse("redis-sentinel://one,two,one:26379/main").is_err());
        assert!(parse("redis+unix:///tmp/redis.sock?db=3&user=u&pass=p").is_ok());
    }
}
