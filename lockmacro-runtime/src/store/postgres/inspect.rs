//! Reading the locks of a database. No secret of a holder or a waiter leaves it.

use std::iter::Peekable;
use std::str::Chars;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connection::Pool;
use super::error::of_call;
use super::store::Postgres;
use super::values::{Values, column, read_back, stored};
use crate::protocol::answer::Asked;
use crate::store::calls::budget::{Budget, Retry};
use crate::store::calls::error::CallError;
use crate::store::inspection::Inspection;
use crate::value::error::LockError;
use crate::value::holder::Holder;
use crate::value::inspection::{HeldLock, Listing, QueuedWaiter};
use crate::value::key::LockKey;
use crate::value::token::Token;

/// Most waiters of a queue that are returned.
const WAITERS_MAX: usize = 1_000;

impl Inspection for Postgres {
    fn held<'a>(
        &'a self,
        pattern: &'a str,
        _: bool,
        limit: usize,
    ) -> Asked<'a, Result<Listing<HeldLock>, LockError>> {
        Box::pin(async move {
            let (regex, most) = (regex(pattern), one_more(limit));
            let values: Values<'_> = &[(&regex, Type::TEXT), (&most, Type::INT8)];
            let locks = self.look("look_for($1, $2)", values, &pattern.into(), lock).await?;
            let truncated = locks.len() > limit;
            let mut items: Vec<_> = locks.into_iter().flatten().take(limit).collect();
            // A key with a NUL is elsewhere in the order of the database.
            items.sort_by(|one, other| one.key.cmp(&other.key));
            Ok(Listing { items, skipped: Vec::new(), truncated })
        })
    }

    fn holder<'a>(&'a self, key: &'a LockKey) -> Asked<'a, Result<Option<HeldLock>, LockError>> {
        Box::pin(async move {
            let values: Values<'_> = &[(&stored(key), Type::TEXT)];
            Ok(self.look("look($1)", values, key, lock).await?.pop().flatten())
        })
    }

    fn queue<'a>(
        &'a self,
        key: &'a LockKey,
        limit: usize,
    ) -> Asked<'a, Result<Listing<QueuedWaiter>, LockError>> {
        Box::pin(async move {
            let limit = limit.clamp(1, WAITERS_MAX);
            let values: Values<'_> = &[(&stored(key), Type::TEXT), (&one_more(limit), Type::INT8)];
            let mut items = self.look("look_behind($1, $2)", values, key, waiter).await?;
            let truncated = items.len() > limit;
            items.truncate(limit);
            Ok(Listing { items, skipped: Vec::new(), truncated })
        })
    }

    #[cfg(feature = "defer")]
    fn functions(&self, limit: usize) -> Asked<'_, Result<Listing<String>, LockError>> {
        Box::pin(async move {
            let (most, nothing) = (one_more(limit), LockKey::from(""));
            let values: Values<'_> = &[(&most, Type::INT8)];
            let read = |row: &Row| column(row, 0);
            let mut items = self.look("look_for_functions($1)", values, &nothing, read).await?;
            let truncated = items.len() > limit;
            items.truncate(limit);
            Ok(Listing { items, skipped: Vec::new(), truncated })
        })
    }
}

impl Postgres {
    /// Calls a function of the schema that only reads, and reads its rows.
    async fn look<T>(
        &self,
        call: &str,
        values: Values<'_>,
        key: &LockKey,
        read: fn(&Row) -> Result<T, CallError>,
    ) -> Result<Vec<T>, LockError> {
        let statement = &format!("SELECT * FROM {}.{call}", self.pool.servers.schema);
        let link = Pool::link_of(key.as_str());
        let ask = |budget, _| async move {
            // There may be many rows to go through.
            let budget = Budget { answer: self.timeout, ..budget };
            let rows = self.pool.call(link, statement, values, budget).await?;
            rows.iter().map(read).collect()
        };
        let looked = Retry::new(self.budget()).repeat(ask).await;
        looked.map_err(|error| of_call(error, key))
    }
}

/// A limit by which more are noticed.
fn one_more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

fn left(row: &Row, nth: usize) -> Result<Option<Duration>, CallError> {
    Ok(u64::try_from(column::<i64>(row, nth)?).ok().map(Duration::from_millis))
}

/// A row of `look`; `None` for a key that only other programs can have written.
fn lock(row: &Row) -> Result<Option<HeldLock>, CallError> {
    let Some(key) = LockKey::found(read_back(column(row, 0)?)) else { return Ok(None) };
    let token: &str = column(row, 1)?;
    let (sharing, waiters): (i32, i32) = (column(row, 3)?, column(row, 4)?);
    Ok(Some(HeldLock {
        key,
        holder: Holder::of(token.as_bytes(), left(row, 2)?),
        sharing: usize::try_from(sharing).ok().filter(|sharing| *sharing > 0),
        waiters: usize::try_from(waiters).ok(),
        token: Token::found(token.as_bytes()),
    }))
}

fn waiter(row: &Row) -> Result<QueuedWaiter, CallError> {
    let token: &str = column(row, 0)?;
    let Holder { owner, note, .. } = Holder::of(token.as_bytes(), None);
    let callers = usize::try_from(column::<i32>(row, 2)?).ok();
    Ok(QueuedWaiter { owner, note, left: left(row, 1)?, callers })
}

/// A glob pattern of Redis as a regular expression of PostgreSQL. `?` and `[…]` are one character
/// here, and one byte there.
fn regex(pattern: &str) -> String {
    // What a key with a NUL begins with: see `stored`.
    let (mut regex, mut rest) = ("^(?:lm1:)?".to_owned(), pattern.chars().peekable());
    while let Some(c) = rest.next() {
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' => class(&mut regex, &mut rest),
            '\\' => literal(&mut regex, rest.next().unwrap_or(c)),
            c => literal(&mut regex, c),
        }
    }
    regex + "$"
}

/// The rest of a class, after its `[`. It may have no end, as in Redis.
fn class(regex: &mut String, rest: &mut Peekable<Chars<'_>>) {
    let is_not = rest.next_if_eq(&'^').is_some();
    let mut class = String::new();
    while let Some(mut first) = rest.next().filter(|c| *c != ']') {
        let mut last = first;
        let mut after = rest.clone();
        if first == '\\' {
            first = rest.next().unwrap_or(first);
            last = first;
        } else if let (Some('-'), Some(end)) = (after.next(), after.next()) {
            last = end;
            *rest = after;
        }
        literal(&mut class, first.min(last));
        if first != last {
            class.push('-');
            literal(&mut class, first.max(last));
        }
    }
    match (class.is_empty(), is_not) {
        (true, true) => regex.push('.'),
        // It matches nothing.
        (true, false) => regex.push_str("(?!)"),
        (false, _) => regex.extend(["[", if is_not { "^" } else { "" }, &class, "]"]),
    }
}

/// A character that stands for itself.
fn literal(regex: &mut String, c: char) {
    match c {
        '\0' => regex.push_str("%00"),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => regex.extend(['\\', c]),
        c => regex.push(c),
    }
}
