//! Locks in a PostgreSQL database: asking, and the checks when a manager connects.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use super::client::batch::{Batch, Renewals, Unwanted};
use super::client::connection::{PUSHES, Pool};
use super::client::error::{READ_ONLY, unexpected};
use super::client::live::CONNECTION;
use super::client::url::Database;
use super::client::values::{column, millis, stored, values};
use super::schema::{VERSION, install, state};
use crate::protocol::answer::{Answer, Contention, Queueing};
use crate::protocol::request::Request;
use crate::reuse::Values;
use crate::store::remote::budget::{Budget, Retry};
use crate::store::remote::error::RemoteError;
use crate::store::remote::wait::SentRequest;
use crate::store::subscriptions::Subscription;
use crate::sys::random;
use crate::sys::sync::Mutex;
use crate::sys::task::spawn;
use crate::sys::time::{Instant, Moment};
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason, setting_name};
use crate::value::fence::FenceBlock;
use crate::value::key::LockKey;
use crate::value::limits::WAITER_TTL;

/// The `nth` of a request that was served after its end.
const TOO_LATE: i32 = -1;
/// How often unused rows are removed.
const TIDY_EVERY: Duration = Duration::from_secs(10 * 60);
pub(crate) struct Postgres {
    pub(crate) pool: Arc<Pool>,
    pub(crate) timeout: Duration,
    pub(super) renewals: Renewals,
    /// The waiters whose places are kept together: the key and the token of each.
    pub(super) stays: Arc<Batch<(String, String), bool>>,
    /// What is held for values.
    pub(crate) values: Values,
    /// When unused rows are removed next, and from which key on.
    tidy: Arc<Mutex<(Instant, String)>>,
    /// Whether callers without a wait fail at once while their server is down.
    pub(crate) fails_fast: bool,
}

impl Postgres {
    /// Locks on this server, not connected yet. No call takes longer than `timeout`.
    pub(crate) fn new(servers: Database, timeout: Duration) -> Self {
        let pool = Pool::new(servers, timeout, &Arc::default(), Arc::default(), Arc::default());
        let renewals = Renewals::new(timeout);
        // Random, so that short-lived processes remove rows, too.
        let first = Instant::now() + TIDY_EVERY.mul_f64(random::fraction());
        let tidy = Arc::new(Mutex::new((first, String::new())));
        Self {
            pool,
            timeout,
            renewals,
            stays: Batch::new(Duration::ZERO, timeout, 1, Unwanted::IsDropped),
            values: Values::default(),
            tidy,
            fails_fast: false,
        }
    }

    /// The same locks, through connections of their own.
    pub(super) fn apart(&self) -> Self {
        let renewals = Renewals::new(self.timeout);
        Self {
            pool: self.pool.apart(),
            renewals,
            stays: Batch::new(Duration::ZERO, self.timeout, 1, Unwanted::IsDropped),
            values: self.values.clone(),
            tidy: Arc::clone(&self.tidy),
            ..*self
        }
    }

    /// Connects, makes the schema if the URL says so, and checks its version and the server's role.
    pub(super) async fn connected(&self) -> Result<(), LockError> {
        let check = |budget, _| async move {
            if self.pool.servers.installs {
                // With all of the time, as making the tables takes longer than an answer may.
                self.install(Budget { answer: self.timeout, ..budget }).await?;
            }
            self.state(budget).await
        };
        let checked = Retry::new(Budget::within(self.timeout)).repeat(check).await;
        checked.map_err(failed)
    }

    /// Makes the schema, or brings it to this version.
    pub(crate) async fn install(&self, budget: Budget) -> Result<(), RemoteError> {
        let text = install(&self.pool.servers.schema);
        let made = self.pool.execute(PUSHES, &text, budget).await;
        made.map_err(|error| match error {
            RemoteError::Final(LockError::AccessDenied { server, .. }) => {
                let detail = "make the schema as a user who may create one".to_owned();
                RemoteError::Final(LockError::AccessDenied { detail, server, keys: None })
            }
            error => error,
        })
    }

    pub(crate) async fn state(&self, budget: Budget) -> Result<(), RemoteError> {
        let servers = &self.pool.servers;
        let row = self.pool.query_one(PUSHES, &state(&servers.schema), budget).await?;
        let version: i32 = column(&row, 0)?;
        let is_replica: bool = column(&row, 1)?;
        let is_read_only: bool = column(&row, 2)?;
        let may_call: bool = column(&row, 3)?;
        self.pool.clock.note(column::<i64>(&row, 4)?.cast_unsigned());
        // The role first: a replica has the schema of its primary, and grants nothing all the same.
        Err(RemoteError::Final(if is_replica || is_read_only {
            let detail = if is_replica { "connect to its primary" } else { READ_ONLY };
            let server = Some(servers.name.clone());
            LockError::unavailable_at(server, UnavailableReason::ReadOnly, detail)
        } else if !may_call {
            LockError::access_denied(servers.rights())
        } else if version < VERSION {
            let detail = format!(
                "it has version {version}, and this program needs {VERSION}: run `lockmacro postgres \
                 install`, which keeps all locks"
            );
            LockError::invalid(setting_name::SCHEMA, detail)
        } else {
            return Ok(());
        }))
    }

    /// Asks once, from the queue if the caller is a waiter.
    pub(super) async fn ask(
        &self,
        request: &Request,
        subscription: Option<&Subscription>,
        budget: Budget,
    ) -> Result<(Answer, SentRequest), RemoteError> {
        let keys: Vec<_> = request.ask.keys().iter().map(stored).collect();
        let holders: Vec<_> =
            request.ask.keys().iter().map(|key| key.mode().limit().cast_signed()).collect();
        let ttl = millis(request.ask.ttl);
        let waits = millis(WAITER_TTL);
        let id = subscription.map(Subscription::next_id);
        let channel = subscription.map(|_| &self.pool.channel);
        let callers = i32::try_from(request.ask.events().callers()).unwrap_or(i32::MAX);
        let token = request.token.secret.expose();
        let fenced = request.ask.needs_fence_now();
        let values = values![keys, token, ttl, holders, fenced, id, channel, callers, waits];
        // Before the request, as the lease counts from here.
        let sent = Moment::now();
        // From here on the server may have the token, whatever becomes of this future.
        request.token.set_applied(Applied::Unknown);
        let link = Pool::link_of(request.ask.key.as_str());
        let row = self.pool.call_in_time(link, "ask", values, budget).await?;
        self.pool.clock.note(column::<i64>(&row, 4)?.cast_unsigned());
        if column::<Option<i32>>(&row, 0)? == Some(TOO_LATE) {
            return Err(RemoteError::late().at(|| self.pool.name()));
        }
        // No caller waits for these pushes.
        drop(self.pool.push(column(&row, 6)?, column(&row, 7)?));
        self.tidy();
        let reply = answer(request, sent, &row, subscription.is_some())?;
        Ok((reply, SentRequest { sent, connection: Some(CONNECTION), received: true }))
    }

    /// Removes unused rows in the background, now and then.
    fn tidy(&self) {
        let mut tidy = self.tidy.lock();
        if Instant::now() < tidy.0 {
            return;
        }
        // Before the work, so that one of many requests begins it.
        tidy.0 = Instant::now() + TIDY_EVERY;
        let mut after = tidy.1.clone();
        let next = Arc::clone(&self.tidy);
        let pool = Arc::clone(&self.pool);
        let budget = Budget::within(self.timeout);
        let link = Pool::link_of("");
        spawn(async move {
            let retention = millis(pool.servers.retention());
            while Instant::now() < budget.until {
                let values = values![retention, after];
                let row = pool.call(link, "tidy", values, budget).await;
                match row.and_then(|row| column::<Option<String>>(&row, 0)) {
                    Ok(Some(key)) => after = key,
                    Ok(None) => {
                        after.clear();
                        break;
                    }
                    // It goes on from there.
                    Err(_) => break,
                }
            }
            next.lock().1 = after;
        });
    }
}

/// The error for the caller, where it names no key.
pub(crate) fn failed(error: RemoteError) -> LockError {
    error.into_error(&LockKey::from(""))
}

/// Reads the reply to a request that was sent at `sent`.
fn answer(request: &Request, sent: Moment, row: &Row, waits: bool) -> Result<Answer, RemoteError> {
    if let Some(nth) = column::<Option<i32>>(row, 0)? {
        let holder: Option<&str> = column(row, 1)?;
        let left: i64 = column(row, 2)?;
        let rank: Option<i32> = column(row, 3)?;
        let at: i64 = column(row, 4)?;
        let rank = rank.and_then(|rank| u32::try_from(rank).ok());
        let place = rank.map_or(Queueing::Full, Queueing::Behind);
        let queue = if waits { place } else { Queueing::Outside };
        let nth = usize::try_from(nth).unwrap_or_default();
        let contention = Contention::of(nth, holder.unwrap_or_default().as_bytes(), left);
        return Ok(Answer::Contended(Contention { queue, at: at.cast_unsigned(), ..contention }));
    }
    let fences: Vec<&str> = column(row, 5)?;
    let fences = fences.into_iter().filter(|block| !block.is_empty());
    let fences: Result<Vec<FenceBlock>, ()> = fences.map(str::parse).collect();
    Ok(Answer::granted(request, sent, fences.map_err(|()| unexpected("a fence"))?))
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.pool.servers.name;
        f.debug_struct("Postgres").field("server", server).finish_non_exhaustive()
    }
}
