//! The other two ways to handle a busy order: to wait for one's turn, and to have it done later.

use std::sync::OnceLock;
use std::time::Duration;

use clap::ValueEnum;
use lockmacro_runtime::defer::{DeferredFn, JobState, Worker};
use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use tokio::time::sleep;

use crate::desk::{Desk, OrderError, WORK};
use crate::orders::{Request, order_key};
use crate::record::Record;

/// How a desk handles a busy order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Busy {
    /// It reports this, goes on with other orders, and tries again in the next pass
    Report,
    /// It waits in line
    Wait,
    /// It has the request stored, and a worker does it later
    Defer,
}

/// The record of the bodies of this process, which is global because a job knows no desk.
static RECORD: OnceLock<Record> = OnceLock::new();

impl Desk {
    /// Handles a request when it is its turn.
    #[distributed_lock(
        key = order_key(&request.order_no),
        ttl = "300s",
        wait = "30s",
        manager = self.locks
    )]
    pub async fn handle_in_turn(&self, request: &Request) -> Result<(), OrderError> {
        let _presence = self.record.enter(&self.name, request)?;
        sleep(WORK).await;
        Ok(())
    }
}

/// Handles a request now, or when its order is not busy any more.
#[distributed_lock(
    key = order_key(&request.order_no),
    ttl = "300s",
    on_busy = defer("50ms"), name = "erp.handle"
)]
pub async fn handle_or_later(desk: String, request: Request) -> Result<(), OrderError> {
    let record = RECORD.get().ok_or_else(|| LockError::unavailable("no record is kept"))?;
    let _presence = record.enter(&desk, &request)?;
    sleep(WORK).await;
    Ok(())
}

/// The server that keeps jobs, when it is not that of the locks.
pub fn calls_url() -> Option<String> {
    std::env::var("CALLS_URL").ok().filter(|url| !url.is_empty())
}

/// Makes ready for functions that know no desk.
pub fn install(locks: &LockManager, record: &Record) -> Result<(), LockError> {
    RECORD.get_or_init(|| record.clone());
    locks.install()
}

/// Runs the jobs until none is left. A service would do so for as long as it runs.
pub async fn finish(locks: &LockManager) -> Result<(), LockError> {
    let handle = handle_or_later_deferred;
    let worker = Worker::new(locks).register(handle());
    // Without a server no job is run any more. The jobs are run by the next run.
    let (mut ended, emptied) = (Ok(()), until_empty(locks, handle()));
    worker.run_until(async { ended = emptied.await }).await?;
    locks.shutdown(Duration::from_secs(5)).await?;
    ended
}

async fn until_empty<A>(locks: &LockManager, function: DeferredFn<A>) -> Result<(), LockError> {
    let job_queue = locks.job_queue();
    loop {
        let mut left = 0;
        // In this order, so that a call that moves from one to the other is seen in one of them.
        for state in [JobState::Running, JobState::Waiting, JobState::Running] {
            left += job_queue.list(function.name().into(), state, 0, 0).await?.total;
        }
        if left == 0 {
            return Ok(());
        }
        sleep(WORK).await;
    }
}
