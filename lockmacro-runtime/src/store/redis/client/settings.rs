//! The settings of every connection to a server: login, TCP and TLS.

use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError};

use crate::store::redis::client::credentials::{Credentials, refused};
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::tls::Files;
use crate::value::error::LockError;
use crate::value::url::FORM;

/// Time for which a connection is idle before the system probes it.
const IDLE: Duration = Duration::from_secs(30);

/// The settings of every connection that one URL opens.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) login: RedisConnectionInfo,
    /// A provider of user and password, in place of those of the URL.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) tcp: TcpSettings,
    /// The certificates, where the connection is encrypted.
    pub(crate) tls: Option<Files>,
}

impl Settings {
    /// A client for the server at `at`.
    pub(crate) fn client(&self, at: &ConnectionAddr) -> Result<Client, LockError> {
        let info = at.clone().into_connection_info().map_err(unreadable)?;
        let info = info.set_redis_settings(self.login.clone()).set_tcp_settings(self.tcp.clone());
        match (&self.tls, at) {
            (Some(files), ConnectionAddr::Tcp(host, port)) => {
                let (host, port) = (host.clone(), *port);
                let at = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
                files.client(info.set_addr(at))
            }
            _ => Client::open(info).map_err(unreadable),
        }
    }

    /// The same with current credentials.
    pub(crate) async fn current(&self) -> Result<Self, CallError> {
        let mut current = self.clone();
        if let Some(credentials) = &self.credentials {
            let (user, password) = credentials.ask().await?;
            current.login = current.login.set_username(user).set_password(password);
        }
        Ok(current)
    }

    /// Makes a refused login transient if the next credentials may be accepted.
    pub(crate) fn or_next_login(&self, error: CallError) -> CallError {
        match error {
            CallError::Final(LockError::Authentication { detail, .. })
                if self.credentials.is_some() =>
            {
                refused(&detail)
            }
            other => other,
        }
    }
}

pub(crate) fn tcp(unsent: Duration) -> TcpSettings {
    // Notices a connection that was silently cut while it was idle.
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(IDLE / 6);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive)
        // Data that was not sent when a connection is closed must not be sent later.
        .set_linger_time(Duration::ZERO);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let tcp = tcp.set_user_timeout(unsent);
    #[cfg(not(any(target_os = "android", target_os = "linux")))]
    let _ = unsent;
    tcp
}

/// The text of the `redis` crate could quote the URL, and with it the password.
pub(crate) fn unreadable(_: RedisError) -> LockError {
    LockError::invalid_url(FORM)
}
