//! The value that a holder keeps for others: a row beside the key's.

use std::time::Duration;

use super::connection::Pool;
use super::store::{Postgres, failed};
use super::values::{Values, column, millis, only, stored, values};
use crate::protocol::request::Request;
use crate::store::calls::budget::Budget;
use crate::value::error::LockError;
use crate::value::key::LockKey;

impl Postgres {
    pub(super) async fn kept_value(&self, key: &LockKey) -> Result<Option<String>, LockError> {
        let row = self.of_value(key, "kept", values![stored(key)]).await?;
        column(&row, 0).map_err(failed)
    }

    pub(super) async fn keep_value(
        &self,
        request: &Request,
        value: &str,
        time: Duration,
    ) -> Result<bool, LockError> {
        let (key, token, time) = (stored(&request.key), request.token.expose(), millis(time));
        let row = self.of_value(&request.key, "keep", values![key, token, value, time]).await?;
        column(&row, 0).map_err(failed)
    }

    async fn of_value(
        &self,
        key: &LockKey,
        function: &str,
        values: Values<'_>,
    ) -> Result<tokio_postgres::Row, LockError> {
        let (link, budget) = (Pool::link_of(key.as_str()), Budget::within(self.timeout));
        only(self.call(link, function, values, budget).await?).map_err(failed)
    }
}
