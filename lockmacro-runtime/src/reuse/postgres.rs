//! The value that a holder keeps for others: a row beside the key's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use scopeguard::{ScopeGuard, guard};
use tokio::time::sleep;
use tokio_postgres::Row;

use crate::protocol::request::Request;
use crate::reuse::value::{KeptText, ValueOf};
use crate::store::postgres::client::connection::Pool;
use crate::store::postgres::client::values::{Values, column, millis, stored, values};
use crate::store::postgres::store::{Postgres, failed};
use crate::store::remote::budget::{Budget, Retry};
use crate::sys::task::spawn;
use crate::value::error::LockError;
use crate::value::key::LockKey;

/// How long after its end a value is there at most, while a process lives that has kept values.
const FORGET_WITHIN: Duration = Duration::from_secs(30);
/// Shortest pause between two removals, each of which removes many.
const FORGET_AGAIN: Duration = Duration::from_millis(100);

pub(crate) async fn kept(
    postgres: &Postgres,
    ValueOf { key, name }: ValueOf<'_>,
) -> Result<Option<KeptText>, LockError> {
    let row = of_value(postgres, key, "kept", values![stored(key), name]).await?;
    let text: Option<&str> = column(&row, 0).map_err(failed)?;
    let left: Option<i64> = column(&row, 1).map_err(failed)?;
    let kept = |(text, left): (&str, i64)| KeptText {
        text: text.into(),
        left: Duration::from_millis(u64::try_from(left).unwrap_or_default()),
    };
    Ok(text.zip(left).map(kept))
}

pub(crate) async fn keep(
    postgres: &Postgres,
    request: &Request,
    ValueOf { key, name }: ValueOf<'_>,
    value: &str,
    time: Duration,
) -> Result<bool, LockError> {
    let token = request.token.secret.expose();
    let time = millis(time);
    let stored = stored(key);
    let values = values![stored, token, value, time, name];
    let row = of_value(postgres, key, "keep", values).await?;
    forget_values(postgres, Duration::from_millis(time.unsigned_abs()));
    column(&row, 0).map_err(failed)
}

/// Removes values soon after their time, while there are any: they are users' data, and the
/// next call that would replace one may never come.
fn forget_values(postgres: &Postgres, first: Duration) {
    if postgres.values.forgets.swap(true, Ordering::SeqCst) {
        return;
    }
    // Its task may be dropped with its runtime.
    let ends =
        guard(Arc::clone(&postgres.values), |values| values.forgets.store(false, Ordering::SeqCst));
    let pool = Arc::downgrade(&postgres.pool);
    let timeout = postgres.timeout;
    spawn(async move {
        let mut pause = first;
        loop {
            // A value that is kept meanwhile may end before the next one that is known.
            sleep(pause.clamp(FORGET_AGAIN, FORGET_WITHIN)).await;
            let Some(pool) = pool.upgrade().filter(|pool| !pool.is_closed()) else { return };
            // A value that is kept from here on starts another task.
            ends.forgets.store(false, Ordering::SeqCst);
            let budget = Budget::within(timeout);
            let row = pool.call(Pool::link_of(""), "forget_values", &[], budget).await;
            let left = row.and_then(|row| column::<Option<i64>>(&row, 0));
            pause = match left {
                Ok(Some(left)) => Duration::from_millis(u64::try_from(left).unwrap_or_default()),
                Ok(None) => return,
                Err(_) => FORGET_WITHIN,
            };
            if ends.forgets.swap(true, Ordering::SeqCst) {
                ScopeGuard::into_inner(ends);
                return;
            }
        }
    });
}

async fn of_value(
    postgres: &Postgres,
    key: &LockKey,
    function: &str,
    values: Values<'_>,
) -> Result<Row, LockError> {
    let link = Pool::link_of(key.as_str());
    let budget = Budget::within(postgres.timeout);
    let call = |budget, _| postgres.pool.call(link, function, values, budget);
    Retry::new(budget).repeat(call).await.map_err(failed)
}
