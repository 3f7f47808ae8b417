//! How etcd is reached, and under which keys it keeps locks.

use std::fmt;
use std::time::Duration;

use lockmacro_runtime::store::StoreError;

/// How [`EtcdStore::connect`](crate::EtcdStore::connect) reaches etcd.
///
/// ```
/// use std::time::Duration;
///
/// use lockmacro_etcd::EtcdOptions;
///
/// let options = EtcdOptions::default()
///     .user("billing", "secret")
///     .prefix("billing/locks/")
///     .timeout(Duration::from_secs(4));
/// # let _ = options;
/// ```
#[derive(Clone)]
#[must_use]
pub struct EtcdOptions {
    pub(crate) user: Option<(String, String)>,
    pub(crate) prefix: String,
    pub(crate) timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) tls: crate::tls::Pems,
}

impl Default for EtcdOptions {
    /// No login, keys under `lockmacro/`, and a timeout of 2 s.
    fn default() -> Self {
        Self {
            user: None,
            prefix: "lockmacro/".to_owned(),
            timeout: Duration::from_secs(2),
            #[cfg(feature = "tls")]
            tls: crate::tls::Pems::default(),
        }
    }
}

impl EtcdOptions {
    /// Logs in with a name and a password. The user needs a role that may read and write all keys
    /// with the [prefix](EtcdOptions::prefix).
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// What the keys of locks begin with in etcd: `lockmacro/` by default. Programs exclude each
    /// other only with the same prefix.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long one call may take, with its retries on other nodes: 2 s by default. One node has a
    /// fifth of it to answer a request.
    ///
    /// A manager has a [timeout] of its own. It has to be the same, as [`connect`](crate::connect)
    /// makes it.
    ///
    /// [timeout]: lockmacro_runtime::LockManagerBuilder::timeout
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Trusts the servers that these certificates have signed, in place of the usual ones. In PEM.
    #[cfg(feature = "tls")]
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.roots = Some(pem.into());
        self
    }

    /// Shows this certificate to the servers, whose private key is `key`. Both in PEM.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.client = Some((certificate.into(), key.into()));
        self
    }

    /// Says what is wrong with the options or the endpoints.
    pub(crate) fn check(&self, endpoints: &[String]) -> Result<(), StoreError> {
        // It may have a password in it, so no text shows it.
        if endpoints.iter().any(|endpoint| endpoint.contains('@')) {
            let text = "an endpoint has no login: write http://host:port, and give the login to \
                        `EtcdOptions::user`";
            return Err(StoreError::unusable(text));
        }
        let is_wrong = |endpoint: &&String| {
            let address = match endpoint.split_once("://") {
                Some(("http", address)) => address,
                Some(("https", address)) if cfg!(feature = "tls") => address,
                _ => return true,
            };
            address.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err())
        };
        if let Some(endpoint) = endpoints.iter().find(is_wrong) {
            let secure = if cfg!(feature = "tls") { "" } else { " (and https:// with `tls`)" };
            let text = format!("write endpoints as http://host:port{secure}, not {endpoint:?}");
            return Err(StoreError::unusable(text));
        }
        if endpoints.is_empty() || self.prefix.is_empty() || self.timeout.is_zero() {
            return Err(StoreError::unusable("give at least one endpoint, a prefix and a timeout"));
        }
        Ok(())
    }
}

/// An endpoint as errors and logs show it: without a login, which does not belong there.
pub(crate) fn shown(endpoint: &str) -> &str {
    endpoint.rsplit_once('@').map_or(endpoint, |(_, address)| address)
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("prefix", &self.prefix)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
