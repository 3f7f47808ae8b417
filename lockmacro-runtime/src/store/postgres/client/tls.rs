//! Encrypted connections.

use std::collections::BTreeMap;

use tokio_postgres::config::SslMode;

use crate::value::error::LockError;
use crate::value::url::decoded;

/// The settings of a URL for encrypted connections.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    is_on: bool,
    /// The files by their settings.
    files: BTreeMap<String, String>,
}

impl Tls {
    /// Takes a setting if it is about this.
    pub(crate) fn take(&mut self, name: &str, value: &str) -> Result<bool, LockError> {
        match (name, value) {
            // The certificate of the server is checked in any case.
            ("sslmode", "require" | "verify-ca" | "verify-full") => self.is_on = true,
            ("sslmode", "disable" | "allow" | "prefer") => self.is_on = false,
            ("sslmode", _) => {
                let why = "write `require` for encrypted connections, or `disable`";
                return Err(LockError::invalid("sslmode", why));
            }
            ("sslrootcert", "system") => self.is_on = true,
            ("cacert" | "cert" | "key" | "sslrootcert" | "sslcert" | "sslkey", _) => {
                self.is_on = true;
                let name = name.trim_start_matches("ssl").replace("rootcert", "cacert");
                self.files.insert(name, decoded(value));
            }
            _ => return Ok(false),
        }
        if self.is_on && cfg!(not(feature = "postgres-tls")) {
            let why = "TLS needs the feature `postgres-tls` of lockmacro-runtime";
            return Err(LockError::invalid_url(why));
        }
        Ok(true)
    }

    pub(crate) fn mode(&self) -> SslMode {
        if self.is_on { SslMode::Require } else { SslMode::Disable }
    }

    /// What makes connections encrypted, if they are to be. Reads the files now.
    #[cfg(feature = "postgres-tls")]
    pub(crate) fn connector(
        &self,
    ) -> Result<Option<tokio_postgres_rustls::MakeRustlsConnect>, LockError> {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        use rustls::{ClientConfig, RootCertStore};
        use tokio_postgres_rustls::MakeRustlsConnect;

        use crate::store::remote::tls::Pems;

        if !self.is_on {
            return Ok(None);
        }
        let pems = Pems::read(&self.files)?;
        let bad = |name, error: &dyn ToString| LockError::invalid(name, error.to_string());
        let certificates = |name, pem: &[u8]| {
            let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            all.map_err(|error| bad(name, &error))
        };
        let mut roots = RootCertStore::empty();
        match pems.roots {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(pem) => {
                for certificate in certificates("cacert", &pem)? {
                    roots.add(certificate).map_err(|error| bad("cacert", &error))?;
                }
            }
        }
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = match pems.client {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from_pem_slice(&key);
                let key = key.map_err(|error| bad("key", &error))?;
                let config = config.with_client_auth_cert(certificates("cert", &certificate)?, key);
                config.map_err(|error| bad("cert", &error))?
            }
        };
        Ok(Some(MakeRustlsConnect::new(config)))
    }
}
