//! The fence in a write's own transaction, with a real PostgreSQL server.

#[path = "../recipes/fenced_postgres.rs"]
mod recipe;

use std::os::unix::fs::chown;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockmacro_runtime::LockManager;
use lockmacro_tests::eventually;
use recipe::{RAISE, TABLES, count, grant, sell};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// Long enough for a loaded machine to start a server.
const IN_TIME: Duration = Duration::from_secs(60);
/// PostgreSQL does not run as root. This user exists everywhere.
const NOBODY: u32 = 65_534;

/// A server of its own, on a socket in a directory of its own.
struct Postgres {
    directory: TempDir,
    server: Child,
}

impl Postgres {
    /// `None` where there is no PostgreSQL, and `tests/run` has said so.
    async fn start() -> Option<Self> {
        if std::env::var_os("LOCKMACRO_WITHOUT_POSTGRES").is_some() {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let is_root = command("id").arg("-u").output().expect("id runs").stdout == b"0\n";
        let mut made = as_user("initdb", is_root);
        if is_root {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("given away");
        }
        made.arg("--pgdata").arg(directory.path().join("data"));
        made.args(["--auth=trust", "--username=postgres", "--no-sync", "--locale=C"]);
        let made = made.stdout(Stdio::null()).status().expect("initdb runs");
        assert!(made.success(), "initdb failed");
        let mut server = as_user("postgres", is_root);
        server.arg("-D").arg(directory.path().join("data")).arg("-k").arg(directory.path());
        server.args(["-F", "-c", "listen_addresses=", "-c", "shared_buffers=1MB"]);
        let server = server.stderr(Stdio::null()).spawn().expect("postgres runs");
        let this = Self { directory, server };
        eventually("the server answers", IN_TIME, || async { this.try_connect().await.is_some() })
            .await;
        Some(this)
    }

    async fn try_connect(&self) -> Option<Client> {
        let place = format!("host={} user=postgres", self.directory.path().display());
        let (client, connection) = tokio_postgres::connect(&place, NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    async fn connect(&self) -> Client {
        self.try_connect().await.expect("the server answers")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.server.kill().and_then(|()| self.server.wait()).expect("it runs");
    }
}

/// The programs are on the PATH of `tests/run`, or where Debian has them.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = debian.map(|version| version.path().join("bin").display().to_string());
    let path = std::env::var("PATH").into_iter().chain(debian).collect::<Vec<_>>().join(":");
    command.env("PATH", path).current_dir("/");
    command
}

/// The kernel kills the program when the test ends.
fn as_user(program: &str, is_root: bool) -> Command {
    let mut command = command("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if is_root {
        let nobody = NOBODY.to_string();
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    }
    command.arg(program);
    command
}

#[tokio::test]
async fn a_late_writer_is_refused_and_changes_nothing() {
    let Some(server) = Postgres::start().await else { return };
    let mut db = server.connect().await;
    db.batch_execute(TABLES).await.unwrap();
    let locks = LockManager::isolated_memory();
    let (paused, next) = (grant(&locks).await.unwrap(), grant(&locks).await.unwrap());
    // The first holder may write for as long as nobody else has.
    assert!(sell(&mut db, 1, paused).await.unwrap());
    assert!(count(&db, 90, next).await.unwrap());
    assert!(sell(&mut db, 5, next).await.unwrap());
    assert!(!count(&db, 100, paused).await.unwrap());
    assert!(!sell(&mut db, 50, paused).await.unwrap());
    let row = db.query_one("SELECT amount FROM stock", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 85);
}

/// A check before the transaction would let both write.
#[tokio::test]
async fn a_late_writer_waits_for_a_write_in_flight_and_is_refused() {
    let Some(server) = Postgres::start().await else { return };
    let (mut newer, mut late) = (server.connect().await, server.connect().await);
    newer.batch_execute(&TABLES.replace(" TEMP ", " ")).await.unwrap();
    let locks = LockManager::isolated_memory();
    let (paused, next) = (grant(&locks).await.unwrap(), grant(&locks).await.unwrap());
    let write = newer.transaction().await.unwrap();
    assert_eq!(write.execute(RAISE, &[&i64::from(next)]).await.unwrap(), 1);

    let late = tokio::spawn(async move { sell(&mut late, 50, paused).await });
    let observer = server.connect().await;
    eventually("the late one waits", IN_TIME, || async {
        let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        observer.query(waits, &[]).await.is_ok_and(|rows| rows.len() == 1)
    })
    .await;
    write.commit().await.unwrap();
    assert!(!late.await.unwrap().unwrap(), "the late one has written");
}
