//! TLS: the trusted certificates, and the client's own.

use redis::{Client, ConnectionInfo, RedisError};

use crate::value::error::LockError;

/// The files that a URL names. They are read for each new connection, so that a certificate can be
/// renewed while the program runs.
#[derive(Clone, Default)]
pub(crate) struct Files {
    cacert: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl Files {
    pub(crate) fn set(&mut self, name: &str, path: String) {
        let field = match name {
            "cacert" => &mut self.cacert,
            "cert" => &mut self.cert,
            _ => &mut self.key,
        };
        *field = Some(path);
    }

    /// Checks that TLS is available and the files are complete.
    pub(crate) fn checked(self) -> Result<Self, LockError> {
        // A check of our own: another crate of the program may have enabled the TLS feature of
        // `redis`.
        if cfg!(not(feature = "tls")) {
            return Err(LockError::invalid_url("TLS needs the feature `tls` of lockmacro-runtime"));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(LockError::invalid_url(
                "`cert` and `key` belong together: give both, or none",
            ));
        }
        Ok(self)
    }
}

#[cfg(not(feature = "tls"))]
impl Files {
    pub(crate) fn client(&self, _: ConnectionInfo) -> Result<Client, LockError> {
        Err(LockError::invalid_url("TLS needs the feature `tls` of lockmacro-runtime"))
    }
}

/// Describes a TLS error, if it is one.
#[cfg(not(feature = "tls"))]
pub(crate) fn explained(_: &RedisError) -> Option<String> {
    None
}

#[cfg(feature = "tls")]
pub(crate) use with_rustls::explained;

#[cfg(feature = "tls")]
mod with_rustls {
    use std::error::Error;
    use std::io;
    use std::sync::Arc;

    use redis::{ClientTlsConfig, TlsCertificates};
    use rustls::crypto::{CryptoProvider, ring};
    use rustls::{AlertDescription, CertificateError};

    use super::*;

    impl Files {
        pub(crate) fn client(&self, info: ConnectionInfo) -> Result<Client, LockError> {
            // Without a provider rustls panics. A provider that the program has installed stays.
            if CryptoProvider::get_default().is_none() {
                // Fails only if another thread has installed one meanwhile.
                let _ = ring::default_provider().install_default();
            }
            let client_tls = match (&self.cert, &self.key) {
                (Some(cert), Some(key)) => Some(ClientTlsConfig {
                    client_cert: read("cert", cert, "CERTIFICATE-----")?,
                    client_key: read("key", key, "PRIVATE KEY-----")?,
                }),
                _ => None,
            };
            let root_cert = self.cacert.as_deref().map(|ca| read("cacert", ca, "CERTIFICATE-----"));
            let certificates = TlsCertificates { client_tls, root_cert: root_cert.transpose()? };
            Client::build_with_tls(info, certificates)
                .map_err(|error| LockError::invalid_url(error.to_string()))
        }
    }

    /// Reads a PEM file that contains `what`.
    fn read(name: &str, path: &str, what: &str) -> Result<Vec<u8>, LockError> {
        let text = std::fs::read(path)
            .map_err(|error| LockError::invalid_url(format!("`{name}`, {path}: {error}")))?;
        if text.windows(what.len()).any(|window| window == what.as_bytes()) {
            return Ok(text);
        }
        let what = what.trim_end_matches('-').to_lowercase();
        Err(LockError::invalid_url(format!("`{name}`, {path}: the file has no {what} in PEM form")))
    }

    pub(crate) fn explained(error: &RedisError) -> Option<String> {
        // The `redis` crate wraps an I/O error in an `Arc`, with the error of rustls inside.
        let wrapped = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
        let inner = wrapped.downcast_ref::<io::Error>()?.get_ref()?;
        inner.downcast_ref::<rustls::Error>().map(with_remedy)
    }

    /// The error, and what to do about it.
    fn with_remedy(error: &rustls::Error) -> String {
        let remedy = match error {
            rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                ": name the certificate of its issuer by `cacert=`"
            }
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
                ": the server wants a client certificate, name it by `cert=` and `key=`"
            }
            rustls::Error::InvalidMessage(_) => ": the server may not speak TLS on this port",
            _ => "",
        };
        format!("{error}{remedy}")
    }
}
