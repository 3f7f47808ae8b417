//! The server of a `postgres://` URL, and its settings.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::TargetSessionAttrs;

use super::tls::Tls;
use crate::value::error::LockError;
use crate::value::fence::RETENTION;
use crate::value::url::{Url, decoded, named, retention};

const FORM: &str = "it is not of the form `postgres://user:password@host:port/db`";
/// Time for which a connection is idle before the system probes it.
const IDLE: Duration = Duration::from_secs(30);

/// What one URL names.
#[derive(Clone)]
pub(crate) struct Deployment {
    config: Config,
    /// For the connection that receives pushes, which no pooler may be in the way of.
    listening: Config,
    #[cfg(feature = "postgres-tls")]
    pub(super) tls: Tls,
    /// The hosts, for messages.
    pub(crate) name: Box<str>,
    pub(crate) schema: String,
    /// Whether the schema is made where it is missing.
    pub(crate) installs: bool,
    pub(crate) fence_retention: Option<Duration>,
}

impl Deployment {
    /// The server of a URL, `None` for another scheme. Data that the network has not accepted
    /// within `unsent` is dropped, on systems with such a setting.
    pub(crate) fn of(url: &Url<'_>, unsent: Duration) -> Option<Result<Self, LockError>> {
        matches!(url.scheme, "postgres" | "postgresql").then(|| Self::read(url, unsent))
    }

    fn read(url: &Url<'_>, unsent: Duration) -> Result<Self, LockError> {
        let (mut schema, mut installs, mut fence_retention) = ("lm1".to_owned(), false, None);
        let (mut application, mut listens, mut tls) =
            ("lockmacro".to_owned(), None, Tls::default());
        for setting in &url.settings {
            let (name, value) = named(setting);
            match name {
                "schema" => schema = decoded(value),
                "install" if value == "1" => installs = true,
                "install" => return Err(LockError::invalid("install", "write `install=1`")),
                "fence_retention" => fence_retention = Some(retention(value)?),
                "application_name" => application = decoded(value),
                "listen" => listens = Some(decoded(value)),
                _ if tls.takes(name, value)? => {}
                _ => return Err(url.has_no(setting)),
            }
        }
        check_schema(&schema)?;
        let login = url.login.ok_or_else(|| LockError::invalid_url(FORM))?;
        let config = |hosts: &str| {
            if hosts.split(',').any(str::is_empty) {
                return Err(LockError::invalid_url(FORM));
            }
            let at = format!("postgres://{login}@{hosts}/{}", url.path.unwrap_or_default());
            // The error of the library may show a password.
            let mut config: Config = at.parse().map_err(|_| LockError::invalid_url(FORM))?;
            if config.get_hosts().len() > 1 {
                config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            }
            config.application_name(&application).ssl_mode(tls.mode());
            config.keepalives_idle(IDLE).keepalives_interval(IDLE / 6).tcp_user_timeout(unsent);
            Ok(config)
        };
        let listening = config(listens.as_deref().unwrap_or(url.hosts))?;
        let (config, name) = (config(url.hosts)?, decoded(url.hosts).into());
        Ok(Self {
            config,
            listening,
            #[cfg(feature = "postgres-tls")]
            tls,
            name,
            schema,
            installs,
            fence_retention,
        })
    }

    /// The settings of a connection: with `listens`, of one that receives pushes.
    pub(super) fn config(&self, listens: bool) -> &Config {
        if listens { &self.listening } else { &self.config }
    }

    /// Whether another server may take over at any time.
    pub(crate) fn fails_over(&self) -> bool {
        self.config.get_hosts().len() > 1
    }

    /// What gives the user its rights.
    pub(crate) fn rights(&self) -> String {
        let (schema, user) = (&self.schema, self.config.get_user().unwrap_or_default());
        format!(
            "GRANT USAGE ON SCHEMA {schema} TO \"{user}\"; \
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO \"{user}\""
        )
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
        return Err(LockError::invalid("schema", why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Deployment, LockError> {
        Deployment::of(&Url::parse(url).unwrap(), Duration::from_secs(2)).unwrap()
    }

    #[test]
    fn a_url_names_hosts_a_login_a_database_and_settings() {
        let url = "postgres://shop:p%40ss@one:7000,[::1],%2Frun%2Fpg/orders?schema=locks&install=1";
        let Deployment { config, schema, installs, .. } = read(url).unwrap();
        assert_eq!((config.get_user(), config.get_password()), (Some("shop"), Some(&b"p@ss"[..])));
        assert_eq!(
            (config.get_dbname(), config.get_ports()),
            (Some("orders"), &[7000, 5432, 5432][..])
        );
        assert_eq!((schema.as_str(), installs), ("locks", true));
        assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let alone = read("postgresql://shop@localhost").unwrap().config;
        assert_eq!((alone.get_user(), alone.get_password()), (Some("shop"), None));
        assert_eq!(alone.get_target_session_attrs(), TargetSessionAttrs::Any);
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
        ] {
            let error = read(url).err().map(|error| error.to_string()).unwrap();
            assert!(error.contains(why) && !error.contains("hunter2"), "{url}: {error}");
        }
    }
}
