//! With `DATABASE_URL`: a desk that writes orders to the database that has the locks. Each write is
//! a transaction that begins with the check of the lock's fence. So a desk that was paused, and
//! does not know that its lock has ended, cannot write over what the next desk has written.

use std::time::Duration;

use lockmacro_runtime::fence::{FenceCheck, LATE_SQLSTATE};
use lockmacro_runtime::{Lock, LockError, LockManager, distributed_lock};
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_postgres::{Client, Error, NoTls};

use crate::desk::WORK;
use crate::orders::{Request, order_key};
use crate::record::Record;
use crate::report::{Refusal, Worker, failed};
use crate::summary::say;
use crate::{StartError, server_url};

/// It is one transaction. The desks begin at once, and only one may make a table.
const TABLE: &str = "SELECT pg_advisory_xact_lock(hashtextextended('erp_order', 0));
    CREATE TABLE IF NOT EXISTS erp_order (order_no TEXT PRIMARY KEY, warehouse TEXT,
        written_by TEXT NOT NULL, writes BIGINT NOT NULL)";
const WRITE: &str = "INSERT INTO erp_order AS o VALUES ($1, $2, $3, 1)
    ON CONFLICT (order_no) DO UPDATE SET warehouse = coalesce(excluded.warehouse, o.warehouse),
        written_by = excluded.written_by, writes = o.writes + 1";

/// A desk with a connection of its own for orders.
pub struct FencedDesk {
    name: String,
    locks: LockManager,
    orders: Mutex<Client>,
    record: Record,
}

impl FencedDesk {
    pub async fn open(name: &str, database: &str, record: &Record) -> Result<Self, StartError> {
        let url = server_url().ok_or("there is no server")?;
        let locks = LockManager::builder().label(name).connect(&url).await?;
        let (orders, connection) = tokio_postgres::connect(database, NoTls).await?;
        tokio::spawn(connection);
        orders.batch_execute(TABLE).await?;
        let (name, orders, record) = (name.to_owned(), Mutex::new(orders), record.clone());
        Ok(Self { name, locks, orders, record })
    }

    /// The check fails if somebody else has been granted the lock since, and nothing is written.
    /// Until the transaction ends, no other process is granted it.
    async fn write(&self, request: &Request, check: &FenceCheck) -> Result<(), Error> {
        let mut orders = self.orders.lock().await;
        let write = orders.transaction().await?;
        write.execute(check.sql(), &[&check.key(), &check.fence()]).await?;
        write.execute(WRITE, &[&request.order_no, &request.warehouse, &self.name]).await?;
        write.commit().await
    }

    #[distributed_lock(
        key = order_key(&request.order_no),
        ttl = "300s",
        guard = lock,
        fence = fence,
        message = "order <request.order_no> is being processed: within 300 seconds only one request is allowed",
        manager = self.locks
    )]
    async fn process(&self, request: &Request) -> Result<(), Refusal> {
        let _presence = self.record.enter(&self.name, request).map_err(failed)?;
        sleep(WORK).await;
        self.write(request, &lock.fence_check()?).await.map_err(failed)
    }

    pub async fn close(self) -> Result<(), LockError> {
        self.locks.shutdown(Duration::from_secs(5)).await
    }
}

impl Worker for FencedDesk {
    async fn attempt(&self, request: &Request) -> Result<(), Refusal> {
        self.process(request).await
    }
}

/// A desk is paused for longer than its lease, and goes on when the next one has written. Returns
/// whether its write was refused.
pub async fn late_writer(
    database: &str,
    request: &Request,
    record: &Record,
) -> Result<bool, StartError> {
    let paused = FencedDesk::open("paused", database, record).await?;
    let next = FencedDesk::open("next", database, record).await?;
    let lock = Lock::new(order_key(&request.order_no)).wait(Duration::from_secs(30));
    let held = lock.clone().ttl(Duration::from_millis(200)).manager(&paused.locks);
    let lost = held.fenced().acquire().await?;
    let guard = lock.manager(&next.locks).fenced().acquire().await?;
    next.write(request, &guard.fence_check()?).await?;
    guard.release().await?;
    let refused = paused.write(request, &lost.fence_check()?).await.err();
    let code = refused.as_ref().and_then(|error| error.code());
    let is_refused = code.is_some_and(|code| code.code() == LATE_SQLSTATE);
    if is_refused {
        say(format!("paused: LATE {}: its write was refused", request.order_no));
    }
    next.close().await?;
    Ok(is_refused)
}
