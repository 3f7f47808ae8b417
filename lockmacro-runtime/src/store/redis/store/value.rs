//! The value that a holder keeps for others: a companion key of the lock.

use std::slice;
use std::time::Duration;

use super::Redis;
use crate::protocol::request::Request;
use crate::store::redis::scripts::VALUE;
use crate::value::error::LockError;
use crate::value::key::LockKey;

impl Redis {
    pub(super) async fn kept_value(&self, key: &LockKey) -> Result<Option<String>, LockError> {
        let read = VALUE.with(slice::from_ref(key), &[]);
        let value = self.eval_until(read, self.budget()).await;
        value.map_err(|error| error.into_error(key))
    }

    pub(super) async fn keep_value(
        &self,
        request: &Request,
        value: &str,
        time: Duration,
    ) -> Result<bool, LockError> {
        let args = [request.token.expose(), value, &time.as_millis().to_string()];
        let keep = VALUE.with(slice::from_ref(&request.key), &args);
        let is_kept = self.eval_until(keep, self.budget()).await;
        is_kept.map_err(|error| error.into_error(&request.key))
    }
}
