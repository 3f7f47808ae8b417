//! Encrypted connections.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::CallError;
use crate::options::EtcdOptions;

/// The contents of PEM files.
#[derive(Clone, Default)]
pub(crate) struct Pems {
    /// Those whose servers are trusted, in place of the usual ones.
    pub(crate) roots: Option<Vec<u8>>,
    /// The certificate of the client, and its key.
    pub(crate) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// Speaks TLS to the server at an address with a port.
pub(crate) async fn encrypted(
    tcp: TcpStream,
    address: &str,
    options: &EtcdOptions,
) -> Result<TlsStream<TcpStream>, CallError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(CallError::not_sent)?;
    let config = config(&options.tls).map_err(CallError::not_sent)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
    stream.map_err(CallError::not_sent)
}

fn config(pems: &Pems) -> io::Result<ClientConfig> {
    let certificates = |pem| CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let mut roots = RootCertStore::empty();
    match &pems.roots {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for root in certificates(pem).map_err(io::Error::other)? {
                roots.add(root).map_err(io::Error::other)?;
            }
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let mut config = match &pems.client {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_slice(key).map_err(io::Error::other)?;
            let certificate = certificates(certificate).map_err(io::Error::other)?;
            config.with_client_auth_cert(certificate, key).map_err(io::Error::other)?
        }
    };
    // etcd has HTTP/1 on the same port.
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
