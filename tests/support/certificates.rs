//! An authority of the test's own, and what it has signed.

use std::fs::write;
use std::os::unix::fs::PermissionsExt as _;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use crate::Server;
use crate::postgres::give_to_servers;

/// Files in PEM form: the authority's certificate, and one with its key for a server and a client.
pub struct Certificates {
    directory: TempDir,
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificates {
    /// Those of a new authority.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        let name = format!("authority {}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let directory = tempfile::tempdir().expect("a directory for certificates");
        let this = Self { directory };
        write(this.path("ca.pem"), authority.pem()).expect("written");
        for name in ["server", "client"] {
            let key = KeyPair::generate().expect("a key");
            let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
            let params = CertificateParams::new(names).expect("good names");
            let signed = params.signed_by(&key, &authority).expect("signed");
            write(this.path(&format!("{name}.pem")), signed.pem()).expect("written");
            write(this.path(&format!("{name}.key")), key.serialize_pem()).expect("written");
        }
        this
    }

    /// Gives the files to the user of PostgreSQL servers, who wants the keys for itself.
    pub fn belong_to_servers(&self) {
        for entry in std::fs::read_dir(self.directory.path()).into_iter().flatten().flatten() {
            let private = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(entry.path(), private).expect("made private");
            give_to_servers(&entry.path());
        }
        give_to_servers(self.directory.path());
    }

    /// A server that speaks nothing but TLS.
    pub fn server(&self) -> Server {
        let settings = self.settings("no");
        let settings = settings.iter().map(String::as_str);
        let alone = ["--tls-port", "{port}", "--port", "0"];
        Server::with(&settings.chain(alone).collect::<Vec<_>>())
    }

    /// The settings of a server. `clients` says whether clients need a certificate.
    pub fn settings(&self, clients: &str) -> [String; 8] {
        [
            "--tls-cert-file".to_owned(),
            self.path("server.pem"),
            "--tls-key-file".to_owned(),
            self.path("server.key"),
            "--tls-ca-cert-file".to_owned(),
            self.path("ca.pem"),
            "--tls-auth-clients".to_owned(),
            clients.to_owned(),
        ]
    }

    /// An address with `s` behind the scheme's first word, and the authority in it.
    pub fn encrypted(&self, url: &str) -> String {
        let url = url.replacen("redis", "rediss", 1);
        format!("{url}{}cacert={}", if url.contains('?') { '&' } else { '?' }, self.path("ca.pem"))
    }

    /// Where `ca.pem`, `server.pem`, `server.key`, `client.pem` or `client.key` is.
    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().expect("a plain path").to_owned()
    }
}
