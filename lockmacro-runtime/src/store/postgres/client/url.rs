//! The server of a `postgres://` URL, and its settings.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;

use super::hosts::Hosts;
use super::tls::Tls;
use crate::value::error::{LockError, setting_name};
use crate::value::fence::RETENTION;
use crate::value::url::{Url, decoded, named, retention};

const FORM: &str = "it is not of the form `postgres://user:password@host:port/db`";
/// What other drivers and poolers read of a URL.
const OTHERS: [&str; 11] = [
    "pgbouncer",
    "connection_limit",
    "pool_timeout",
    "pool_size",
    "keepalives",
    "gssencmode",
    "sslnegotiation",
    "client_encoding",
    "load_balance_hosts",
    "statement_cache_size",
    "prepareThreshold",
];
/// Time for which a connection is idle before the system probes it.
const IDLE: Duration = Duration::from_secs(30);

/// What one URL names.
#[derive(Clone)]
pub(crate) struct Database {
    hosts: Hosts,
    /// For the connection that receives pushes, which no pooler may be in the way of.
    listening: Hosts,
    #[cfg(feature = "postgres-tls")]
    pub(crate) tls: Tls,
    /// The hosts, for messages.
    pub(crate) name: Box<str>,
    pub(crate) schema: String,
    /// Whether the schema is made where it is missing.
    pub(crate) installs: bool,
    pub(crate) fence_retention: Option<Duration>,
}

impl Database {
    /// The server of a URL, `None` for another scheme. Data that the network has not accepted
    /// within `unsent` is dropped, on systems with such a setting.
    pub(crate) fn of(url: &Url<'_>, unsent: Duration) -> Option<Result<Self, LockError>> {
        matches!(url.scheme, "postgres" | "postgresql").then(|| Self::read(url, unsent))
    }

    fn read(url: &Url<'_>, unsent: Duration) -> Result<Self, LockError> {
        let mut schema = "lm1".to_owned();
        let mut installs = false;
        let mut fence_retention = None;
        let mut application = "lockmacro".to_owned();
        let mut listens = None;
        let mut tls = Tls::default();
        // Settings that the library reads.
        let mut passed_on = String::new();
        let is_known = |setting| format!("postgres://host?{setting}").parse::<Config>().is_ok();
        for setting in &url.settings {
            let (name, value) = named(setting);
            match name {
                "schema" => schema = decoded(value),
                "install" if value == "1" => installs = true,
                "install" => return Err(LockError::invalid("install", "write `install=1`")),
                "fence_retention" => fence_retention = Some(retention(value)?),
                "application_name" => application = decoded(value),
                "options" | "connect_timeout" | "channel_binding" if is_known(setting) => {
                    passed_on = format!("{passed_on}{setting}&");
                }
                "connect_timeout" => {
                    return Err(LockError::invalid("connect_timeout", "write it in seconds"));
                }
                "channel_binding" => {
                    let why = "write `require`, `prefer` or `disable`";
                    return Err(LockError::invalid("channel_binding", why));
                }
                // Of several hosts it is the primary in any case.
                "target_session_attrs" if matches!(value, "any" | "read-write" | "primary") => {}
                "target_session_attrs" => {
                    let why = "locks need the primary: write `read-write`";
                    return Err(LockError::invalid("target_session_attrs", why));
                }
                "listen" => listens = Some(decoded(value)),
                "ssl" => return Err(LockError::invalid("ssl", "write `sslmode=require`")),
                _ if tls.take(name, value)? => {}
                _ if OTHERS.contains(&name) => {
                    let why = format!(
                        "remove `{name}`: it is for other drivers, and without a meaning here"
                    );
                    return Err(LockError::invalid_url(why));
                }
                _ => return Err(url.refuse_unknown(setting)),
            }
        }
        check_schema(&schema)?;
        let login = url.login.ok_or_else(|| LockError::invalid_url(FORM))?;
        let config = |host: &str, is_alone: bool| {
            if host.is_empty() {
                return Err(LockError::invalid_url(FORM));
            }
            // To the library a login ends at its first `@`, which may be one of the password.
            let login = login.replace('@', "%40");
            let path = url.path.unwrap_or_default();
            let at = format!("postgres://{login}@{host}/{path}?{passed_on}");
            // The error of the library may show a password.
            let mut config: Config = at.parse().map_err(|_| LockError::invalid_url(FORM))?;
            if !is_alone {
                config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            }
            config.application_name(&application).ssl_mode(tls.mode());
            config.keepalives_idle(IDLE).keepalives_interval(IDLE / 6).tcp_user_timeout(unsent);
            Ok(config)
        };
        let hosts = |hosts: &str| {
            let is_alone = !hosts.contains(',');
            let configs: Result<_, _> =
                hosts.split(',').map(|host| config(host, is_alone)).collect();
            configs.map(Hosts::new)
        };
        let listens = listens.map(|listens| hosts(&listens));
        let name = decoded(url.hosts).into();
        let hosts = hosts(url.hosts)?;
        let listening = listens.unwrap_or_else(|| Ok(hosts.clone()))?;
        Ok(Self {
            hosts,
            listening,
            #[cfg(feature = "postgres-tls")]
            tls,
            name,
            schema,
            installs,
            fence_retention,
        })
    }

    /// The hosts for a connection: with `listens`, for one that receives pushes.
    pub(crate) fn hosts(&self, listens: bool) -> &Hosts {
        if listens { &self.listening } else { &self.hosts }
    }

    /// Whether pushes come from other addresses than answers.
    pub(crate) fn listens_elsewhere(&self) -> bool {
        !self.listening.is_same_list(&self.hosts)
    }

    /// Whether another server may take over at any time.
    pub(crate) fn can_fail_over(&self) -> bool {
        self.hosts.configs().len() > 1
    }

    /// What gives the user its rights.
    pub(crate) fn rights(&self) -> String {
        let schema = &self.schema;
        let user = self.user().unwrap_or_default().replace('"', "\"\"");
        format!(
            "GRANT USAGE ON SCHEMA {schema} TO \"{user}\"; \
             GRANT EXECUTE ON ALL ROUTINES IN SCHEMA {schema} TO \"{user}\""
        )
    }

    fn user(&self) -> Option<&str> {
        self.hosts.configs().first().and_then(Config::get_user)
    }

    /// How long a key's last fence is kept.
    pub(crate) fn retention(&self) -> Duration {
        self.fence_retention.unwrap_or(RETENTION)
    }
}

/// Fails for a name that would have to be quoted in a statement.
pub(crate) fn check_schema(name: &str) -> Result<(), LockError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.starts_with("pg_");
    if !begins || name.len() > 40 || !name.chars().all(is_plain) {
        let why = "write a letter and up to 39 of `a` to `z`, `0` to `9` and `_`";
        return Err(LockError::invalid(setting_name::SCHEMA, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::ChannelBinding;
    #[cfg(feature = "postgres-tls")]
    use tokio_postgres::config::SslMode;

    use super::*;

    fn read(url: &str) -> Result<Database, LockError> {
        Database::of(&Url::parse(url).unwrap(), Duration::from_secs(2)).unwrap()
    }

    #[test]
    fn a_url_names_hosts_a_login_a_database_and_settings() {
        let url = "postgres://shop:p%40ss@one:7000,[::1],%2Frun%2Fpg/orders?schema=locks&install=1";
        let Database { hosts, schema, installs, .. } = read(url).unwrap();
        for (config, port) in hosts.configs().iter().zip([7000, 5432, 5432]) {
            assert_eq!(config.get_user(), Some("shop"));
            assert_eq!(config.get_password(), Some(&b"p@ss"[..]));
            assert_eq!((config.get_dbname(), config.get_ports()), (Some("orders"), &[port][..]));
            assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        }
        assert_eq!((hosts.configs().len(), schema.as_str(), installs), (3, "locks", true));
        let alone = read("postgresql://shop@localhost").unwrap().hosts;
        let alone = &alone.configs()[0];
        assert_eq!((alone.get_user(), alone.get_password()), (Some("shop"), None));
        assert_eq!(alone.get_target_session_attrs(), TargetSessionAttrs::Any);
    }

    #[test]
    fn a_url_may_be_as_providers_print_it() {
        let rest = "connect_timeout=10&target_session_attrs=read-write&channel_binding=prefer\
            &application_name=shop&options=endpoint%3Dep-1%20-c%20work_mem%3D8MB&sslmode=disable";
        let config = read(&format!("postgres://shop:p@ss@one/orders@2?{rest}")).unwrap().hosts;
        let config = &config.configs()[0];
        assert_eq!((config.get_user(), config.get_password()), (Some("shop"), Some(&b"p@ss"[..])));
        assert_eq!(config.get_dbname(), Some("orders@2"));
        assert_eq!(config.get_options(), Some("endpoint=ep-1 -c work_mem=8MB"));
        assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(10)));
        assert_eq!(config.get_channel_binding(), ChannelBinding::Prefer);
        assert_eq!(config.get_application_name(), Some("shop"));
    }

    #[test]
    #[cfg(feature = "postgres-tls")]
    fn the_files_of_certificates_may_have_their_names_in_libpq() {
        for setting in ["sslrootcert=system", "sslrootcert=a.pem", "sslcert=a.pem&sslkey=b.pem"] {
            let hosts = read(&format!("postgres://shop@one?{setting}")).unwrap().hosts;
            assert_eq!(hosts.configs()[0].get_ssl_mode(), SslMode::Require, "{setting}");
        }
    }

    #[test]
    fn a_mistake_is_named_and_no_password_is_shown() {
        for (url, why) in [
            ("postgres://localhost", FORM),
            ("postgres://a:hunter2@", FORM),
            ("postgres://a:hunter2@localhost:x", FORM),
            ("postgres://a:hunter2@localhost?schema=A;b", "up to 39 of"),
            ("postgres://a:hunter2@localhost?install=yes", "`install=1`"),
            ("postgres://a:hunter2@localhost?replicated=1", "`replicated` is no setting"),
            ("postgres://a:hunter2@localhost?fence_retention=1h", "1d to 3650d"),
            ("postgres://a:hunter2@localhost?connect_timeout=1s", "in seconds"),
            ("postgres://a:hunter2@localhost?channel_binding=on", "write `require`"),
            ("postgres://a:hunter2@localhost?target_session_attrs=standby", "write `read-write`"),
            ("postgres://a:hunter2@x@?install=1", FORM),
            ("postgres://a:hunter2@localhost?ssl=true", "`sslmode=require`"),
            ("postgres://a:hunter2@localhost?pgbouncer=true", "remove `pgbouncer`"),
        ] {
            let error = read(url).err().map(|error| error.to_string()).unwrap();
            assert!(error.contains(why) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
