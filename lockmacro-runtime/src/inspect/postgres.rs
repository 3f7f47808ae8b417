//! Reading the locks of a database. No secret of a holder or a waiter leaves it.

pub(crate) mod facts;
pub(crate) mod schema;

use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::Row;

use crate::inspect::found::{HeldLock, Listing, QueuedWaiter};
use crate::inspect::inspection::Inspection;
use crate::protocol::answer::StoreFuture;
use crate::store::postgres::client::connection::{PUSHES, Pool};
use crate::store::postgres::client::values::{Values, column, read_back, stored, values};
use crate::store::postgres::store::{Postgres, failed};
use crate::store::remote::budget::{Budget, Retry};
use crate::store::remote::error::RemoteError;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::key::LockKey;
use crate::value::token::Token;

/// Most waiters or holders of a key that are returned.
const LISTED_MAX: usize = 1_000;
/// Longer than a server needs to end a transaction that is over.
const GRANT_OVER: Duration = Duration::from_millis(50);

impl Inspection for Postgres {
    fn held<'a>(
        &'a self,
        pattern: &'a str,
        _: bool,
        limit: usize,
    ) -> StoreFuture<'a, Result<Listing<HeldLock>, LockError>> {
        Box::pin(async move {
            let regex = regex(pattern);
            let most = one_more(limit);
            let locks = look(self, "look_for", values![regex, most], pattern, lock).await?;
            let truncated = locks.len() > limit;
            let mut items: Vec<_> = locks.into_iter().flatten().take(limit).collect();
            // A key with a NUL is elsewhere in the order of the database.
            items.sort_by(|one, other| one.key.cmp(&other.key));
            Ok(Listing { items, skipped: Vec::new(), truncated })
        })
    }

    fn holder<'a>(
        &'a self,
        key: &'a LockKey,
    ) -> StoreFuture<'a, Result<Option<HeldLock>, LockError>> {
        Box::pin(async move {
            let locks = look(self, "look", values![stored(key)], key.as_str(), lock).await?;
            Ok(locks.into_iter().next().flatten())
        })
    }

    fn holders<'a>(
        &'a self,
        key: &'a LockKey,
        limit: usize,
    ) -> StoreFuture<'a, Result<Listing<Holder>, LockError>> {
        Box::pin(async move {
            let limit = limit.clamp(1, LISTED_MAX);
            let name = stored(key);
            let most = one_more(limit);
            let values = values![name, most];
            Ok(listing(look(self, "look_at_holders", values, key.as_str(), holder).await?, limit))
        })
    }

    fn queue<'a>(
        &'a self,
        key: &'a LockKey,
        limit: usize,
    ) -> StoreFuture<'a, Result<Listing<QueuedWaiter>, LockError>> {
        Box::pin(async move {
            let limit = limit.clamp(1, LISTED_MAX);
            let name = stored(key);
            let most = one_more(limit);
            let values = values![name, most];
            Ok(listing(look(self, "look_behind", values, key.as_str(), waiter).await?, limit))
        })
    }

    fn checked_by<'a>(
        &'a self,
        key: &'a LockKey,
    ) -> StoreFuture<'a, Result<Option<String>, LockError>> {
        Box::pin(async move {
            let read = |row: &Row| column(row, 0);
            let found = async || {
                look(self, "look_at_check", values![stored(key)], key.as_str(), read)
                    .await
                    .map(|found| found.into_iter().next())
            };
            let first: Option<String> = found().await?;
            if first.is_none() {
                return Ok(None);
            }
            // A grant that was just over may look like a check. It is another one next time.
            sleep(GRANT_OVER).await;
            let again = found().await?;
            Ok(again.filter(|again| first.as_ref() == Some(again)))
        })
    }
}

/// Calls a function of the schema that only reads, and reads its rows.
pub(crate) async fn look<T>(
    postgres: &Postgres,
    function: &str,
    values: Values<'_>,
    key: &str,
    read: fn(&Row) -> Result<T, RemoteError>,
) -> Result<Vec<T>, LockError> {
    // There may be many rows to go through.
    let budget = Budget::new(postgres.timeout, postgres.timeout);
    let pool = &postgres.pool;
    let calling = pool.calling(function, values.len());
    let list = |budget, _| pool.rows(Pool::link_of(key), &calling, values, budget);
    let rows = Retry::new(budget).repeat(list).await.map_err(failed)?;
    rows.iter().map(read).collect::<Result<_, _>>().map_err(failed)
}

/// Asks once for the rows of a statement without parameters.
async fn query(
    postgres: &Postgres,
    statement: &str,
    budget: Budget,
) -> Result<Vec<Row>, RemoteError> {
    postgres.pool.rows(PUSHES, &format!("({statement}) answer"), &[], budget).await
}

/// The items up to a limit.
pub(crate) fn listing<T>(mut items: Vec<T>, limit: usize) -> Listing<T> {
    let truncated = items.len() > limit;
    items.truncate(limit);
    Listing { items, skipped: Vec::new(), truncated }
}

/// A limit by which more are noticed.
pub(crate) fn one_more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

fn left(row: &Row, nth: usize) -> Result<Option<Duration>, RemoteError> {
    Ok(u64::try_from(column::<i64>(row, nth)?).ok().map(Duration::from_millis))
}

/// A row of `look`; `None` for a key that only other programs can have written.
fn lock(row: &Row) -> Result<Option<HeldLock>, RemoteError> {
    let Some(key) = LockKey::found(read_back(column(row, 0)?)) else { return Ok(None) };
    let token: &str = column(row, 1)?;
    let sharing: i32 = column(row, 3)?;
    let waiters: i32 = column(row, 4)?;
    Ok(Some(HeldLock {
        key,
        holder: Holder::of(token.as_bytes(), left(row, 2)?),
        sharing: usize::try_from(sharing).ok().filter(|sharing| *sharing > 0),
        waiters: usize::try_from(waiters).ok(),
        token: Token::found(token.as_bytes()),
    }))
}

fn holder(row: &Row) -> Result<Holder, RemoteError> {
    Ok(Holder::of(column::<&str>(row, 0)?.as_bytes(), left(row, 1)?))
}

fn waiter(row: &Row) -> Result<QueuedWaiter, RemoteError> {
    let token: &str = column(row, 0)?;
    let Holder { owner, note, asked, .. } = Holder::of(token.as_bytes(), None);
    let callers = usize::try_from(column::<i32>(row, 2)?).ok();
    Ok(QueuedWaiter { owner, note, asked, left: left(row, 1)?, callers, usual_hold: None })
}

/// A glob pattern of Redis as a regular expression of PostgreSQL. `?` and `[…]` are one character
/// here, and one byte there.
fn regex(pattern: &str) -> String {
    // The prefix is that of a key with a NUL: see `stored`.
    let mut regex = "^(?:lm1:)?".to_owned();
    let mut rest = pattern.chars();
    let mut in_class = false;
    while let Some(c) = rest.next() {
        match c {
            '\\' => literal(&mut regex, rest.next().unwrap_or(c)),
            '^' | '-' | '[' | ']' if in_class || c == '[' => {
                in_class = c != ']';
                regex.push(c);
            }
            '*' if !in_class => regex.push_str(".*"),
            '?' if !in_class => regex.push('.'),
            c => literal(&mut regex, c),
        }
    }
    // As in Redis, the last class may have no end.
    regex + if in_class { "]$" } else { "$" }
}

/// A character that stands for itself.
fn literal(regex: &mut String, c: char) {
    match c {
        '\0' => regex.push_str("%00"),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => regex.extend(['\\', c]),
        c => regex.push(c),
    }
}
