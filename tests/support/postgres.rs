//! A PostgreSQL server of the test's own.

use std::fs::{create_dir, read_dir, read_to_string, remove_dir_all, write};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process, test_kill_process};
use tokio_postgres::{Client, NoTls};

use crate::eventually;
use crate::port::Port;
use crate::server::spawn_from_a_lasting_thread;
use crate::times::TEST_TIMEOUT;

/// Long enough for a loaded machine to start a server.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// PostgreSQL does not run as root. This user exists everywhere.
const NOBODY: u32 = 65_534;
const PREFIX: &str = "lockmacro-postgres-";

/// A server on a free port of 127.0.0.1 with a directory of its own. The user `postgres` may do
/// everything, without a password.
///
/// It is killed when dropped, and by the system when the test process dies before that.
#[derive(Debug)]
pub struct Postgres {
    server: Child,
    port: Port,
    directory: PathBuf,
    arguments: Vec<String>,
    /// The thread that asks for tests that cannot wait.
    asks: Mutex<Option<mpsc::Sender<Question>>>,
}

/// A statement, and where its answer goes.
type Question = (String, mpsc::Sender<Vec<String>>);

impl Postgres {
    /// Starts a server that does not wait for its disk, and waits until it answers.
    pub async fn start() -> Self {
        Self::with(&["-F"]).await
    }

    /// Starts a server with these arguments.
    pub async fn with(arguments: &[&str]) -> Self {
        let directory = new_directory();
        let made = as_user("initdb")
            .arg("--pgdata")
            .arg(directory.join("data"))
            .args(["--auth=trust", "--username=postgres", "--no-sync", "--locale=C", "-E", "UTF8"])
            .stdout(Stdio::null())
            .status();
        let made = made.expect("PostgreSQL is installed: run `sh tests/run`");
        assert!(made.success(), "initdb failed");
        let arguments: Vec<_> = arguments.iter().map(|a| (*a).to_owned()).collect();
        Self::on(directory, &arguments).await
    }

    /// Starts a server on its data.
    async fn on(directory: PathBuf, arguments: &[String]) -> Self {
        let (port, arguments) = (Port::any(), arguments.to_vec());
        let server = launch(&directory, port.number(), &arguments);
        let this = Self { server, port, directory, arguments, asks: Mutex::default() };
        this.answers().await;
        this
    }

    /// The address for managers, which make their schema.
    pub fn url(&self) -> String {
        self.url_of("postgres", "install=1")
    }

    /// The address for managers that log in as this user, with these settings.
    pub fn url_of(&self, login: &str, settings: &str) -> String {
        format!("postgres://{login}@127.0.0.1:{}/postgres?{settings}", self.port())
    }

    /// The port it listens on, the same after a restart.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// A plain connection.
    pub async fn connect(&self) -> Client {
        self.try_connect().await.expect("the server answers")
    }

    async fn try_connect(&self) -> Option<Client> {
        try_connect(self.port()).await
    }

    async fn answers(&self) {
        let answers = || async { self.try_connect().await.is_some() };
        eventually("PostgreSQL answers", READY_WITHIN, answers).await;
    }

    /// The first column of what a statement returns, for a test that cannot wait here.
    pub fn ask(&self, statement: &str) -> Vec<String> {
        let (answer, asked) = mpsc::channel();
        let mut asks = self.asks.lock().expect("no panic");
        let asks = asks.get_or_insert_with(|| asker(self.port()));
        asks.send((statement.to_owned(), answer)).expect("the thread lives on");
        asked.recv().expect("an answer")
    }

    /// Ends the connections of managers for which this is true in `pg_stat_activity`, as they are.
    pub fn kill_connections(&self, which: &str) {
        self.ask(&format!(
            "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity
                WHERE application_name = 'lockmacro' AND ({which})"
        ));
    }

    /// Waits until no key with this prefix is held or waited for, and no call of one is left, as it
    /// must be after every test.
    pub async fn keeps_nothing(&self, prefix: &str) {
        let client = self.connect().await;
        let schema = client.query_one("SELECT to_regnamespace('lm1') IS NULL", &[]).await;
        if schema.expect("an answer").get(0) {
            // No manager has connected.
            return;
        }
        let left = "SELECT kind, key, ends::text FROM (
                SELECT 'lease' AS kind, key, ends FROM lm1.lease
                UNION ALL SELECT 'share', key, ends FROM lm1.share
                UNION ALL SELECT 'waiter', key, ends FROM lm1.waiter
                UNION ALL SELECT 'call', key, 'infinity' FROM lm1.call WHERE state <> 'gone'
            ) rows WHERE ends > clock_timestamp() AND starts_with(key, $1)";
        let start = Instant::now();
        loop {
            let rows = client.query(left, &[&prefix]).await.expect("an answer");
            if rows.is_empty() {
                return;
            }
            let row = |row: &tokio_postgres::Row| [0, 1, 2].map(|nth| row.get::<_, String>(nth));
            let rows: Vec<_> = rows.iter().map(row).collect();
            assert!(start.elapsed() < TEST_TIMEOUT, "left behind: {rows:?}");
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    /// Carries out statements in one transaction, one caller after the other: two that change the
    /// rights on the same thing at once would fail.
    pub async fn execute(&self, statements: &str) {
        let statements = &format!("SELECT pg_advisory_xact_lock(1); {statements}");
        self.connect().await.batch_execute(statements).await.expect(statements);
    }

    /// Ends all connections with this `application_name`. Returns how many there were.
    pub async fn terminate(&self, application: &str) -> i64 {
        let statement = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE application_name = $1";
        let rows = self.connect().await.query_one(statement, &[&application]).await;
        rows.expect("an answer").get(0)
    }

    /// Lets users in by these rules from now on, and by the earlier ones after them.
    pub async fn wants(&self, rules: &str) {
        let file = self.directory.join("data/pg_hba.conf");
        let earlier = read_to_string(&file).expect("it is there");
        write(&file, format!("{rules}\n{earlier}")).expect("written");
        self.execute("SELECT pg_reload_conf()").await;
    }

    /// Wants a password of this user from now on.
    pub async fn asks_for_a_password(&self, user: &str) {
        self.wants(&format!("host all {user} 127.0.0.1/32 scram-sha-256")).await;
        let place = format!("host=127.0.0.1 port={} user={user} dbname=postgres", self.port());
        eventually("the rule is read", READY_WITHIN, || async {
            tokio_postgres::connect(&place, NoTls).await.is_err()
        })
        .await;
    }

    /// Starts a standby of this server.
    pub async fn standby(&self) -> Self {
        let directory = new_directory();
        let place = format!("host=127.0.0.1 port={} user=postgres", self.port());
        let copied = as_user("pg_basebackup")
            .arg("--pgdata")
            .arg(directory.join("data"))
            .args(["--dbname", &place, "--checkpoint=fast", "--no-sync", "--write-recovery-conf"])
            .status();
        assert!(copied.expect("it is there").success(), "pg_basebackup failed");
        let mut arguments = self.arguments.clone();
        // Replay waits for what somebody reads, and does not cancel it.
        arguments.extend(["-c".to_owned(), "max_standby_streaming_delay=-1".to_owned()]);
        Self::on(directory, &arguments).await
    }

    /// Stops all processes of the server (SIGSTOP): connections stay open, nothing is answered.
    pub fn pause(&self) {
        // The first one starts no further ones then.
        self.signal(Signal::STOP);
        self.signal_children(Signal::STOP);
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        self.signal_children(Signal::CONT);
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).expect("it runs");
    }

    fn signal_children(&self, signal: Signal) {
        let pid = self.server.id();
        let children = read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        for child in children.expect("it runs").split_whitespace() {
            let child = child.parse().ok().and_then(Pid::from_raw).expect("a number");
            // It may have ended.
            let _ = kill_process(child, signal);
        }
    }

    /// Stops the server, and all that it has started for clients, without a word to anybody.
    pub fn stop_at_once(&mut self) {
        self.signal(Signal::QUIT);
        self.server.wait().expect("it runs");
    }

    /// Starts it again, with what it has written.
    pub async fn restart(&mut self) {
        self.server = launch(&self.directory, self.port(), &self.arguments);
        self.answers().await;
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Killed, it would leave its processes to themselves, and its shared memory to the system.
        if matches!(self.server.try_wait(), Ok(None)) {
            self.resume();
            self.stop_at_once();
        }
        let _ = remove_dir_all(&self.directory);
    }
}

async fn try_connect(port: u16) -> Option<Client> {
    let place = format!("host=127.0.0.1 port={port} user=postgres");
    let (client, connection) = tokio_postgres::connect(&place, NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

/// A thread with a connection of its own.
fn asker(port: u16) -> mpsc::Sender<Question> {
    let (asks, questions) = mpsc::channel::<Question>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut client = runtime.block_on(try_connect(port)).expect("the server answers");
        for (statement, answer) in questions {
            let rows = runtime.block_on(async {
                match client.query(&statement, &[]).await {
                    // The server has been restarted.
                    Err(error) if error.is_closed() || error.as_db_error().is_none() => {
                        client = try_connect(port).await.expect("the server answers");
                        client.query(&statement, &[]).await.expect("an answer")
                    }
                    rows => rows.expect("an answer"),
                }
            });
            // Fails when the test has ended.
            let _ = answer.send(rows.iter().map(|row| row.get(0)).collect());
        }
    });
    asks
}

fn launch(directory: &Path, port: u16, arguments: &[String]) -> Child {
    let mut server = as_user("postgres");
    server.arg("-D").arg(directory.join("data")).arg("-k").arg(directory);
    server.args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
    server.args(["-c", "shared_buffers=16MB", "-c", "max_connections=800"]).args(arguments);
    server.stderr(Stdio::null()).stdout(Stdio::null());
    spawn_from_a_lasting_thread(server)
}

/// A directory that the server's user may write. Removes those of processes that were killed.
pub(crate) fn new_directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let all = std::env::temp_dir();
    for old in read_dir(&all).into_iter().flatten().flatten() {
        let name = old.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if pid.and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_err()) {
            let _ = remove_dir_all(old.path());
        }
    }
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = all.join(format!("{PREFIX}{}-{nth}", std::process::id()));
    create_dir(&directory).expect("a directory");
    give_to_servers(&directory);
    directory
}

/// Makes a file belong to the user of servers.
pub(crate) fn give_to_servers(path: &Path) {
    if getuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("given away");
    }
}

/// A program that the kernel kills when the test ends. It is on the PATH, or where Debian has it.
pub(crate) fn as_user(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    let debian = read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = debian.map(|version| version.path().join("bin").display().to_string());
    let debian = debian.chain(["/usr/sbin".to_owned()]);
    let path = std::env::var("PATH").into_iter().chain(debian).collect::<Vec<_>>().join(":");
    command.env("PATH", path).current_dir("/").args(["--pdeathsig", "KILL"]);
    if getuid().is_root() {
        let nobody = NOBODY.to_string();
        command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]);
    }
    command.arg(program);
    command
}
