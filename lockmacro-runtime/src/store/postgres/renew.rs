//! Renewals: all of a process that are due together are one statement.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;

use super::connection::Pool;
use super::error::unexpected;
use super::statements::Statements;
use super::values::{Values, column};
use crate::store::calls::budget::Budget;
use crate::store::calls::error::CallError;

/// The renewal of one key.
pub(super) struct Renewal {
    pub(super) key: String,
    pub(super) token: String,
    /// In milliseconds.
    pub(super) ttl: i64,
}

/// The connection for renewals, which are for many keys at once.
const RENEWALS: usize = 1;

/// Renews what has gathered.
pub(super) async fn renew(
    pool: Arc<Pool>,
    statements: Arc<Statements>,
    renewals: Vec<Renewal>,
    answer: Duration,
) -> Vec<Result<bool, CallError>> {
    let keys: Vec<_> = renewals.iter().map(|renewal| &*renewal.key).collect();
    let tokens: Vec<_> = renewals.iter().map(|renewal| &*renewal.token).collect();
    let ttls: Vec<_> = renewals.iter().map(|renewal| renewal.ttl).collect();
    let values: Values<'_> =
        &[(&keys, Type::TEXT_ARRAY), (&tokens, Type::TEXT_ARRAY), (&ttls, Type::INT8_ARRAY)];
    let budget = Budget::new(answer, answer);
    let rows = pool.call(RENEWALS, &statements.renew, values, budget).await;
    let held = rows.and_then(|rows| {
        let row = rows.first().ok_or_else(unexpected)?;
        column::<Vec<bool>>(row, 0)
    });
    let held = |nth| held.as_ref().map_err(Clone::clone).map(|held| held.get(nth) == Some(&true));
    (0..renewals.len()).map(held).collect()
}
