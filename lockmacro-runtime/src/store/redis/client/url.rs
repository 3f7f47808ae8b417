//! The servers of a URL, as values: their addresses, the login, and the settings.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo};

use crate::store::redis::client::connector::Server;
use crate::store::redis::client::sentinel::Sentinels;
use crate::store::redis::client::settings::{Settings, connection_info};
use crate::sys::platform::redis_streams::UNIX_SOCKETS;
use crate::value::error::LockError;
use crate::value::url::{Url, decoded, duration, named, retention};

const SENTINEL_FORM: &str =
    "it is not of the form `redis-sentinel://user:password@host1,host2:port,host3/primary/db`";
const SENTINEL_PORT: u16 = 26379;
/// Default timeout for replicas.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Shortest and longest timeout for replicas.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);

/// The servers that one URL names.
#[derive(Clone)]
pub(crate) struct Deployment {
    pub(crate) at: Addresses,
    pub(crate) settings: Settings,
    /// The replicas that have to acknowledge a lock, if any.
    pub(crate) replicated: Option<ReplicaAcks>,
    /// The retention of fences, if the URL names one.
    pub(crate) fence_retention: Option<Duration>,
}

/// The servers to connect to.
#[derive(Clone)]
pub(crate) enum Addresses {
    One(Server),
    /// The nodes of a cluster by which the others are found.
    Cluster(Vec<ConnectionAddr>),
}

/// The settings of a URL, as they are written.
#[derive(Default)]
struct Options<'a> {
    tls_files: BTreeMap<String, String>,
    /// Those that the `redis` crate reads.
    others: Vec<&'a str>,
    sentinel_login: RedisConnectionInfo,
    acks: Option<u32>,
    acks_within: Option<Duration>,
    fence_retention: Option<Duration>,
}

impl<'a> Options<'a> {
    fn read(url: &Url<'a>, encrypted: bool, sentinel: bool) -> Result<Self, LockError> {
        let mut read = Self::default();
        for setting in &url.settings {
            let login = &mut read.sentinel_login;
            let (name, value) = named(setting);
            match name {
                "cacert" | "cert" | "key" if encrypted => {
                    read.tls_files.insert(name.to_owned(), decoded(value));
                }
                "sentinel_user" if sentinel => *login = login.clone().set_username(decoded(value)),
                "sentinel_password" if sentinel => {
                    *login = login.clone().set_password(decoded(value));
                }
                "replicated" => {
                    let why = "write a number of replicas";
                    let acks = value.parse().map_err(|_| LockError::invalid(REPLICATED, why))?;
                    read.acks = Some(acks);
                }
                "replicated_timeout" => {
                    let fault = || {
                        LockError::invalid(
                            REPLICATED_TIMEOUT,
                            "write a time from 1ms to 1h, as `100ms`",
                        )
                    };
                    read.acks_within = Some(duration(value).ok_or_else(fault)?);
                }
                "fence_retention" => read.fence_retention = Some(retention(value)?),
                "db" | "user" | "pass" if url.scheme.ends_with("unix") => {
                    read.others.push(setting);
                }
                _ => return Err(url.refuse_unknown(setting)),
            }
        }
        Ok(read)
    }
}

impl Deployment {
    /// The server that the `redis` crate describes.
    #[cfg(feature = "redis-1")]
    pub(crate) fn of_server(server: &ConnectionInfo, unsent: Duration) -> Self {
        let settings = Settings::new(server.redis_settings().clone(), unsent, None);
        let at = Addresses::One(Server::At(server.addr().clone()));
        Self { at, settings, replicated: None, fence_retention: None }
    }

    /// The servers of a URL. Data that the network has not accepted within `unsent` is dropped, on
    /// systems with such a setting.
    pub(crate) fn of(url: &Url<'_>, unsent: Duration) -> Result<Self, LockError> {
        let scheme = url.scheme.strip_suffix("-cluster").unwrap_or(url.scheme);
        let is_cluster = scheme != url.scheme;
        if scheme.ends_with("unix") && !UNIX_SOCKETS {
            let why =
                "there are no Unix sockets on Windows: name a host, as in `redis://localhost`";
            return Err(LockError::invalid_url(why));
        }
        let encrypted = matches!(scheme, "rediss" | "valkeys" | "rediss-sentinel");
        let sentinel = matches!(scheme, "redis-sentinel" | "rediss-sentinel");
        let options = Options::read(url, encrypted, sentinel)?;
        let replicated = match (options.acks, options.acks_within) {
            (Some(acks), within) => Some(ReplicaAcks::new(acks, within.unwrap_or(TIMEOUT))?),
            (None, Some(_)) => {
                return Err(LockError::invalid(REPLICATED_TIMEOUT, "it needs `replicated`"));
            }
            (None, None) => None,
        };
        let others = options.others.join("&");
        let tls = encrypted.then_some(options.tls_files);
        let settings = |login| Settings::new(login, unsent, tls.clone());
        let login = url.login.map(|login| format!("{login}@")).unwrap_or_default();
        let (at, login) = if sentinel && !is_cluster {
            let path = url.path.ok_or_else(|| LockError::invalid_url(SENTINEL_FORM))?;
            let (name, db) = path.split_once('/').unwrap_or((path, ""));
            if name.is_empty() {
                return Err(LockError::invalid_url(SENTINEL_FORM));
            }
            let infos = url.hosts.split(',').map(|host| {
                let host = with_port(host, SENTINEL_PORT);
                connection_info(format!("redis://{login}{host}/{db}?{others}"))
                    .map_err(|_| LockError::invalid_url(SENTINEL_FORM))
            });
            let (at, login) = addresses(infos)?;
            if at.iter().enumerate().any(|(nth, sentinel)| at[..nth].contains(sentinel)) {
                return Err(LockError::invalid_url(
                    "it names a sentinel twice, which would give it two votes",
                ));
            }
            let name = decoded(name);
            let settings = settings(options.sentinel_login);
            let sentinels = Sentinels::new(at, name, settings, unsent / 4);
            (Addresses::One(Server::Named(Box::new(sentinels))), login)
        } else {
            let scheme = if encrypted { &scheme[..scheme.len() - 1] } else { scheme };
            let path = url.path.map(|path| format!("/{path}")).unwrap_or_default();
            let of = |host| connection_info(format!("{scheme}://{login}{host}{path}?{others}"));
            if is_cluster {
                let (at, login) = addresses(url.hosts.split(',').map(of))?;
                let is_host = |at: &ConnectionAddr| matches!(at, ConnectionAddr::Tcp(..));
                if !at.iter().all(is_host) || login.db() != 0 {
                    let why = "a cluster URL names hosts, and no database but 0";
                    return Err(LockError::invalid_url(why));
                }
                (Addresses::Cluster(at), login)
            } else {
                let info = of(url.hosts)?;
                let at = Addresses::One(Server::At(info.addr().clone()));
                (at, info.redis_settings().clone())
            }
        };
        let settings = settings(login);
        // Wrong certificate files are reported now, and not at the first connection.
        settings.client(&ConnectionAddr::Tcp(String::new(), 0))?;
        Ok(Self { at, settings, replicated, fence_retention: options.fence_retention })
    }
}

/// The addresses of servers with the same login, and that login.
fn addresses(
    infos: impl Iterator<Item = Result<ConnectionInfo, LockError>>,
) -> Result<(Vec<ConnectionAddr>, RedisConnectionInfo), LockError> {
    let infos = infos.collect::<Result<Vec<_>, _>>()?;
    let login = infos.first().map(|info| info.redis_settings().clone());
    Ok((infos.iter().map(|info| info.addr().clone()).collect(), login.unwrap_or_default()))
}

/// A host with its port, or with this default.
fn with_port(host: &str, port: u16) -> String {
    let given = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if given { host.to_owned() } else { format!("{host}:{port}") }
}

const REPLICATED: &str = "replicated";
const REPLICATED_TIMEOUT: &str = "replicated_timeout";

/// The number of replicas that have to acknowledge a lock, and the timeout for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplicaAcks {
    pub(crate) acks: u32,
    pub(crate) timeout: Duration,
}

impl ReplicaAcks {
    pub(crate) fn new(acks: u32, timeout: Duration) -> Result<Self, LockError> {
        if acks == 0 {
            let why = "it needs at least one replica: leave it out, or give their number";
            return Err(LockError::invalid(REPLICATED, why));
        }
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&timeout) {
            let why = "write a time from 1ms to 1h, as `100ms`";
            return Err(LockError::invalid(REPLICATED_TIMEOUT, why));
        }
        Ok(Self { acks, timeout })
    }

    /// The same, with a timeout of at most a quarter of the ttl.
    pub(crate) fn within(self, ttl: Duration) -> Self {
        Self { timeout: self.timeout.min(ttl / 4), ..self }
    }

    /// The timeout as WAIT takes it, where 0 would mean no limit.
    pub(crate) fn milliseconds(self) -> u64 {
        u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// The error for a store that cannot be replicated.
pub(crate) fn not_replicated(why: &str) -> LockError {
    LockError::invalid(REPLICATED, format!("it is for a server with replicas, and {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Deployment, LockError> {
        Deployment::of(&Url::parse(url)?, Duration::from_secs(2))
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
        assert!(parse("redis://localhost/3?replicated=1").is_ok());
        assert!(parse("redis-sentinel://:hunter2@one,two").is_err());
        assert!(parse("redis-sentinel://one,two,one:26379/main").is_err());
    }

    #[test]
    fn a_socket_is_refused_by_name_where_the_system_has_none() {
        for scheme in ["redis+unix", "valkey+unix", "unix"] {
            let read = parse(&format!("{scheme}:///tmp/redis.sock?db=3&user=u&pass=p"));
            let error = read.err().map(|error| error.to_string());
            assert_eq!(error.is_none(), UNIX_SOCKETS, "{scheme}");
            assert!(error.is_none_or(|error| error.contains("Unix sockets on Windows")));
        }
    }

    #[test]
    fn every_server_of_a_cluster_has_its_user_and_settings() {
        let url = "redis-cluster://shop:p%40ss@one:7000,two,[::1]:7002/0?replicated=1";
        let Ok(Deployment { at: Addresses::Cluster(at), settings, .. }) = parse(url) else {
            panic!("not read");
        };
        let at: Vec<_> = at.iter().map(ToString::to_string).collect();
        assert_eq!(at, ["one:7000", "two:6379", "::1:7002"]);
        let login = &settings.login;
        assert_eq!((login.username(), login.password()), (Some("shop"), Some("p@ss")));
        assert!(settings.client(&ConnectionAddr::Tcp("one".to_owned(), 1)).is_ok());
    }

    #[test]
    fn a_url_of_no_cluster_is_refused_without_its_password() {
        for url in [
            "redis-cluster://",
            "redis-cluster://u:secret@one/3",
            "redis-cluster://one,,two",
            "redis+unix-cluster:///run/redis.sock",
            "redis-sentinel-cluster://u:secret@one/main",
        ] {
            let error = parse(url).err();
            assert!(
                matches!(error, Some(LockError::InvalidSetting { setting: "url", .. })),
                "{url}: {error:?}"
            );
            assert!(!format!("{error:?}").contains("secret"));
        }
    }

    #[test]
    fn a_url_names_the_number_of_replicas_and_the_timeout() {
        let read = |acks: Option<&str>, within: Option<&str>| {
            let acks = acks.map(|acks| format!("&replicated={acks}")).unwrap_or_default();
            let within = within.map(|within| format!("&replicated_timeout={within}"));
            let url = format!("redis://localhost?{acks}{}", within.unwrap_or_default());
            parse(&url).map(|read| read.replicated).map_err(|error| error.to_string())
        };
        let is = |acks, ms| Ok(Some(ReplicaAcks { acks, timeout: Duration::from_millis(ms) }));
        assert_eq!(read(None, None), Ok(None));
        assert_eq!(read(Some("2"), None), is(2, 500));
        assert_eq!(read(Some("1"), Some("100ms")), is(1, 100));
        assert_eq!(read(Some("1"), Some("2s")), is(1, 2_000));
        assert_eq!(read(Some("1"), Some("2m")), is(1, 120_000));
        for (acks, within) in [
            (Some("0"), None),
            (Some("-1"), None),
            (Some(""), None),
            (Some("1"), Some("100")),
            (Some("1"), Some("1y")),
            (Some("1"), Some("")),
            (None, Some("100ms")),
        ] {
            assert!(read(acks, within).is_err(), "{acks:?} {within:?}");
        }
    }

    #[test]
    fn waiting_for_replicas_takes_a_quarter_of_a_lease_at_most() {
        let replicated = ReplicaAcks { acks: 1, timeout: TIMEOUT };
        assert_eq!(replicated.within(Duration::from_secs(30)).milliseconds(), 500);
        assert_eq!(replicated.within(Duration::from_millis(400)).milliseconds(), 100);
        assert_eq!(ReplicaAcks { acks: 1, timeout: Duration::ZERO }.milliseconds(), 1);
    }
}
