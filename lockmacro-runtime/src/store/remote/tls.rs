//! The files of encrypted connections, which URLs name.

use std::collections::BTreeMap;
use std::fs;

use rustls::crypto::{CryptoProvider, ring};

use crate::value::error::LockError;

/// The contents of PEM files.
pub(crate) struct Pems {
    /// The certificates of those whose servers are trusted, in place of the usual ones.
    pub(crate) roots: Option<Vec<u8>>,
    /// The client's certificate, and its key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

impl Pems {
    /// Reads the files that the settings `cacert`, `cert` and `key` name.
    pub(crate) fn read(files: &BTreeMap<String, String>) -> Result<Self, LockError> {
        // Without a provider rustls panics. A provider that the program has installed stays.
        if CryptoProvider::get_default().is_none() {
            // Fails only if another thread has installed one meanwhile.
            let _ = ring::default_provider().install_default();
        }
        let read = |name, what| files.get(name).map(|path| read(name, path, what)).transpose();
        let roots = read("cacert", "CERTIFICATE-----")?;
        let client = match (read("cert", "CERTIFICATE-----")?, read("key", "PRIVATE KEY-----")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let why = "it belongs together with `key`: give both, or none";
                return Err(LockError::invalid("cert", why));
            }
        };
        Ok(Self { roots, client })
    }
}

/// Reads a PEM file that contains `what`.
fn read(name: &'static str, path: &str, what: &str) -> Result<Vec<u8>, LockError> {
    let text =
        fs::read(path).map_err(|error| LockError::invalid(name, format!("{path}: {error}")))?;
    if text.windows(what.len()).any(|window| window == what.as_bytes()) {
        return Ok(text);
    }
    let what = what.trim_end_matches('-').to_lowercase();
    Err(LockError::invalid(name, format!("{path}: the file has no {what} in PEM form")))
}

/// The error of rustls, and what to do about it.
pub(crate) fn remedy(error: &rustls::Error) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    use rustls::{AlertDescription, CertificateError};

    let remedy = match error {
        InvalidCertificate(CertificateError::UnknownIssuer) => {
            ": name the certificate of its issuer by `cacert=`"
        }
        AlertReceived(AlertDescription::CertificateRequired) => {
            ": the server wants a client certificate, name it by `cert=` and `key=`"
        }
        InvalidMessage(_) => ": the server may not speak TLS on this port",
        _ => "",
    };
    format!("{error}{remedy}")
}
