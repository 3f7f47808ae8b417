//! A transaction pooler in front of a PostgreSQL server.

use std::fs::{remove_dir_all, write};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use tokio::net::TcpStream;

use crate::port::Port;
use crate::postgres::{as_user, new_directory};
use crate::server::spawn_from_a_lasting_thread;
use crate::times::TEST_TIMEOUT;
use crate::{Postgres, eventually};

/// A `pgbouncer`, which gives its clients another connection to the server for each transaction.
/// It is killed when dropped.
#[derive(Debug)]
pub struct Pooler {
    pooler: Child,
    port: Port,
    directory: PathBuf,
}

impl Pooler {
    /// Starts one with so many connections to the server.
    pub async fn to(server: &Postgres, connections: u32) -> Self {
        let (directory, port) = (new_directory(), Port::any());
        let settings = format!(
            "[databases]
            postgres = host=127.0.0.1 port={} dbname=postgres user=postgres
            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = {}
            unix_socket_dir =
            auth_type = any
            admin_users = postgres
            pool_mode = transaction
            server_login_retry = 1
            query_wait_timeout = 2
            default_pool_size = {connections}",
            server.port(),
            port.number()
        );
        let file = directory.join("pgbouncer.ini");
        write(&file, settings.replace("\n            ", "\n")).expect("written");
        let mut command = as_user("pgbouncer");
        command.arg(&file).stderr(Stdio::null()).stdout(Stdio::null());
        let this = Self { pooler: spawn_from_a_lasting_thread(command), port, directory };
        let answers =
            || async { TcpStream::connect(("127.0.0.1", this.port.number())).await.is_ok() };
        eventually("pgbouncer answers", TEST_TIMEOUT, answers).await;
        this
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The address for managers.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port.number())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.pooler.kill().and_then(|()| self.pooler.wait());
        let _ = remove_dir_all(&self.directory);
    }
}
