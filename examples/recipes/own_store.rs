//! A store of your own: locks for the processes of one machine, in a file of SQLite.
//!
//! `cargo run -p lockmacro-recipes --example own_store`

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockmacro_runtime::store::{AcquireRequest, HeldKey, LockStore, Outcome};
use lockmacro_runtime::store::{StoreError, StoreLimits};
use lockmacro_runtime::{Lock, LockError, LockManager};
use rusqlite::{Connection, OptionalExtension, Params, Row};

/// A row stays when its lock ends, because it keeps the last fence of the key.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS lock
    (key TEXT PRIMARY KEY, token TEXT NOT NULL, ends INTEGER NOT NULL, fence INTEGER NOT NULL)";
/// Each decision is one statement, so that no other process writes in between.
const ACQUIRE: &str = "INSERT INTO lock VALUES (?1, ?2, now() + ?3, 1) ON CONFLICT (key) DO UPDATE
    SET ends = max(ends, now() + ?3), fence = fence + (token <> ?2), token = ?2
    WHERE token = ?2 OR ends <= now() RETURNING fence";
const HELD: &str = "SELECT token, max(ends - now(), 0) FROM lock WHERE key = ?1";
const RENEW: &str = "UPDATE lock SET ends = max(ends, now() + ?3), token = ?4
    WHERE key = ?1 AND token = ?2 AND ends > now() RETURNING true";
const RELEASE: &str = "UPDATE lock SET ends = now() + ?3, token = ?4
    WHERE key = ?1 AND token = ?2 AND ends > now() RETURNING true";
/// In milliseconds. This is the wall clock, as it is one clock for all processes and survives their
/// end: when somebody sets it ahead, leases end early.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// A file with locks.
#[derive(Debug, Clone)]
pub struct FileStore(Arc<Mutex<Connection>>);

impl FileStore {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> rusqlite::Result<Self> {
        let db = Connection::open(path)?;
        db.busy_timeout(Duration::from_secs(1))?;
        db.pragma_update(None, "journal_mode", "wal")?;
        db.execute(TABLE, [])?;
        Ok(Self(Arc::new(Mutex::new(db))))
    }

    /// Asks on a thread that may block. Where that fails, it is not known what was written. A query
    /// whose future was dropped while it waited for its turn is not run any more.
    async fn ask<T: Send + 'static>(
        &self,
        statement: &str,
        values: impl Params + Send + 'static,
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        let db = Arc::clone(&self.0);
        let sql = statement.replace("now()", NOW);
        let (answer, answered) = tokio::sync::oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let db = db.lock().unwrap_or_else(PoisonError::into_inner);
            if !answer.is_closed() {
                let _ = answer.send(db.query_row(&sql, values, read).optional());
            }
        });
        answered.await.map_err(StoreError::unknown)?.map_err(StoreError::unknown)
    }
}

impl LockStore for FileStore {
    async fn acquire(&self, ask: AcquireRequest<'_>) -> Result<Outcome, StoreError> {
        let key = ask.key().to_owned();
        let values = (key.clone(), ask.token().to_owned(), ask.ttl().as_millis() as i64);
        if let Some(fence) = self.ask(ACQUIRE, values, |row| row.get(0)).await? {
            return Ok(Outcome::fenced(fence));
        }
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let (by, left) = self.ask(HELD, [key], read).await?.unzip();
        Ok(Outcome::Held { by, left: left.map(Duration::from_millis) })
    }

    async fn renew(&self, held: HeldKey<'_>, ttl: Duration) -> Result<bool, StoreError> {
        let values = values(held, ttl, held.token().to_owned());
        Ok(self.ask(RENEW, values, |_| Ok(())).await?.is_some())
    }

    async fn release(&self, held: HeldKey<'_>, keep: Duration) -> Result<bool, StoreError> {
        Ok(self.ask(RELEASE, values(held, keep, held.kept()), |_| Ok(())).await?.is_some())
    }

    fn limits(&self) -> StoreLimits {
        // Each write waits for the disk.
        StoreLimits::default().fences().shortest_ttl(Duration::from_secs(1))
    }
}

fn values(held: HeldKey<'_>, time: Duration, next: String) -> impl Params + Send + 'static {
    (held.key().to_owned(), held.token().to_owned(), time.as_millis() as i64, next)
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let file = std::env::temp_dir().join("own-store.db");
    let store = FileStore::open(&file).expect("a directory that can be written");
    let locks = LockManager::builder().connect_store(store).await?;
    let report = Lock::new("report").wait(Duration::from_secs(5)).manager(&locks);
    report
        .run(async {
            println!("no other process of this machine makes it now");
            Ok(())
        })
        .await
}

/// In memory, where there is such a place: the disk of a busy machine may take seconds.
#[cfg(test)]
fn directory() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).expect("a directory")
}

#[cfg(test)]
#[tokio::test]
async fn the_store_keeps_its_promises() {
    let directory = directory();
    let file = directory.path().join("locks.db");
    let open = || async { FileStore::open(&file).expect("opened") };
    lockmacro_runtime::testing::conformance::run(open).await;
}

#[cfg(test)]
#[tokio::test]
async fn a_query_whose_caller_is_gone_is_not_run() {
    use std::task::{Context, Waker};

    let directory = directory();
    let store = FileStore::open(&directory.path().join("locks.db")).expect("opened");
    let ask = |token| AcquireRequest::new("report", token, Duration::from_secs(60));
    {
        let _busy = store.0.lock().expect("no panic");
        let mut asked = Box::pin(store.acquire(ask("web-1/1")));
        assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    // Until its thread is done.
    while Arc::strong_count(&store.0) > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let outcome = store.acquire(ask("web-2/1")).await.expect("an answer");
    assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
}
