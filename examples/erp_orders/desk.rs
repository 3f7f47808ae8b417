//! A desk, and its functions that must not run at two desks at once on the same order.

use std::io;
use std::time::Duration;

use lockmacro_runtime::{LockError, LockManager, Lost, distributed_lock};
use tokio::time::sleep;

use crate::orders::{Request, Task, order_key};
use crate::record::Record;
use crate::report::{Refusal, Worker};
use crate::rollback::Mishaps;
use crate::strategies::{Busy, handle_or_later};

/// The time of a request. The work of the ERP system itself is left out.
pub const WORK: Duration = Duration::from_millis(25);

#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot write the record: {0}")]
    Record(#[from] io::Error),
    #[error("rolled back: {0}")]
    RolledBack(Lost),
}

/// One worker, with a connection of its own that shows its name to the others.
#[derive(Debug)]
pub struct Desk {
    pub name: String,
    pub locks: LockManager,
    pub record: Record,
    /// With `--lose`.
    mishaps: Option<Mishaps>,
    pub busy: Busy,
}

impl Desk {
    pub fn new(
        name: &str,
        locks: LockManager,
        record: Record,
        mishaps: Option<Mishaps>,
        busy: Busy,
    ) -> Self {
        Self { name: name.to_owned(), locks, record, mishaps, busy }
    }

    /// Audits an order. The key is made by a function.
    #[distributed_lock(
        key = order_key(&request.order_no),
        ttl = "300s",
        message = "order <request.order_no> is being processed: within 300 seconds only one request is allowed",
        manager = self.locks
    )]
    async fn audit(&self, request: &Request) -> Result<(), OrderError> {
        let _presence = self.record.enter(&self.name, request)?;
        sleep(WORK).await;
        Ok(())
    }

    /// Assigns an order to a warehouse. The template gives the same key as the function above, so
    /// the two exclude each other for the same order.
    #[distributed_lock(
        key = "order:<request.order_no>",
        ttl = "500s",
        message = "order <request.order_no> is being processed: within 500 seconds only one request is allowed",
        manager = self.locks
    )]
    async fn assign(&self, request: &Request) -> Result<(), OrderError> {
        let _presence = self.record.enter(&self.name, request)?;
        sleep(WORK * 2).await;
        Ok(())
    }

    /// Releases the locks that may still be held.
    pub async fn close(self) -> Result<(), LockError> {
        self.locks.shutdown(Duration::from_secs(5)).await
    }
}

impl Worker for Desk {
    async fn attempt(&self, request: &Request) -> Result<(), Refusal> {
        let result = match (self.busy, request.task, &self.mishaps) {
            (Busy::Wait, ..) => self.handle_in_turn(request).await,
            (Busy::Defer, ..) => handle_or_later(self.name.clone(), request.clone()).await,
            (_, Task::Audit, _) => self.audit(request).await,
            (_, Task::Assign, None) => self.assign(request).await,
            (_, Task::Assign, Some(mishaps)) => {
                self.assign_and_book(request, mishaps).await.map(drop)
            }
        };
        result.map_err(|error| match error {
            OrderError::Lock(error) => error.into(),
            OrderError::RolledBack(lost) => Refusal::RolledBack(lost.to_string()),
            error => Refusal::Failed(error.to_string()),
        })
    }
}
