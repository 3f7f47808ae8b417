//! The settings of every connection to a server: login, TCP and TLS.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use crate::store::remote::error::{RemoteError, Transient};
use crate::sys::platform::redis_streams::dropping_unsent;
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason};
use crate::value::url::FORM;

/// Time for which a connection is idle before the system probes it.
const IDLE: Duration = Duration::from_secs(30);

/// The files that a URL names, by its settings: `cacert` for the trusted certificates, `cert` and
/// `key` for the client's own. They are read for each new connection, so that a certificate can be
/// renewed while the program runs.
type TlsFiles = BTreeMap<String, String>;

/// The settings of every connection that one URL opens.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) login: RedisConnectionInfo,
    /// A provider of user and password, in place of those of the URL.
    pub(crate) credentials: Option<Credentials>,
    tcp: TcpSettings,
    /// Where the connection is encrypted.
    tls: Option<TlsFiles>,
}

impl Settings {
    /// Data that the network has not accepted within `unsent` is dropped, on systems with such a
    /// setting.
    pub(crate) fn new(login: RedisConnectionInfo, unsent: Duration, tls: Option<TlsFiles>) -> Self {
        // Notices a connection that was silently cut while it was idle.
        let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(IDLE / 6);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive)
            // Data that was not sent when a connection is closed must not be sent later.
            .set_linger_time(Duration::ZERO);
        let tcp = dropping_unsent(tcp, unsent);
        Self { login: login.set_skip_set_lib_name(), credentials: None, tcp, tls }
    }

    /// The same with another login.
    pub(crate) fn with(&self, login: RedisConnectionInfo) -> Self {
        Self { login, ..self.clone() }
    }

    /// A client for the server at `at`.
    pub(crate) fn client(&self, at: &ConnectionAddr) -> Result<Client, LockError> {
        let info = connection_info(at.clone())?;
        let info = info.set_redis_settings(self.login.clone()).set_tcp_settings(self.tcp.clone());
        match (&self.tls, at) {
            (Some(files), ConnectionAddr::Tcp(host, port)) => {
                let host = host.clone();
                let port = *port;
                let at = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
                encrypted(files, info.set_addr(at))
            }
            _ => Client::open(info).map_err(|_| LockError::invalid_url(FORM)),
        }
    }

    /// The same with current credentials. A failure to get them counts as a refused login.
    pub(crate) async fn current(&self) -> Result<Self, RemoteError> {
        let Some(Credentials(provider)) = &self.credentials else { return Ok(self.clone()) };
        let asked = provider().await;
        let (user, password) =
            asked.map_err(|error| refused(format!("no credentials: {error}")))?;
        Ok(self.with(self.login.clone().set_username(user).set_password(password)))
    }

    /// Makes a refused login transient if the next credentials may be accepted.
    pub(crate) fn or_next_login(&self, error: RemoteError) -> RemoteError {
        match error {
            RemoteError::Final(LockError::Authentication { detail, .. })
                if self.credentials.is_some() =>
            {
                refused(detail)
            }
            other => other,
        }
    }
}

/// What the `redis` crate reads. Its own error could quote a URL, and with it the password.
pub(crate) fn connection_info(from: impl IntoConnectionInfo) -> Result<ConnectionInfo, LockError> {
    from.into_connection_info().map_err(|_| LockError::invalid_url(FORM))
}

/// The error of a login after which the next one may be accepted: nothing was applied, and a new
/// connection is needed.
fn refused(detail: String) -> RemoteError {
    let transient = Transient::new(UnavailableReason::Disconnected, detail, Applied::No);
    RemoteError::Transient(Transient { login: true, replace: true, ..transient })
}

type LoginFuture = Pin<Box<dyn Future<Output = Result<(String, String), String>> + Send>>;

/// A provider of users and passwords that change: it is called for each new connection.
#[derive(Clone)]
pub(crate) struct Credentials(Arc<dyn Fn() -> LoginFuture + Send + Sync>);

impl Credentials {
    pub(crate) fn new<F, W, E>(provider: F) -> Self
    where
        F: Fn() -> W + Send + Sync + 'static,
        W: Future<Output = Result<(String, String), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let asked = provider();
            Box::pin(async move { asked.await.map_err(|error| error.into().to_string()) })
        }))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// Another crate of the program may have enabled the TLS feature of `redis`.
#[cfg(not(feature = "tls"))]
fn encrypted(_: &TlsFiles, _: ConnectionInfo) -> Result<Client, LockError> {
    Err(LockError::invalid_url("TLS needs the feature `tls` of lockmacro-runtime"))
}

/// A client that reads the certificates now.
#[cfg(feature = "tls")]
fn encrypted(files: &TlsFiles, info: ConnectionInfo) -> Result<Client, LockError> {
    use redis::{ClientTlsConfig, TlsCertificates};

    use crate::store::remote::tls::Pems;

    let Pems { roots, client } = Pems::read(files)?;
    let client_tls =
        client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: roots })
        .map_err(|error| LockError::invalid_url(error.to_string()))
}
