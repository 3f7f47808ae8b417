//! Requests for several locks: one script call, or one for each slot where the server wants that.

use std::sync::atomic::Ordering;

use redis::Value;

use crate::protocol::request::Request;
use crate::store::redis::client::budget::Budget;
use crate::store::redis::client::error::{CallError, unexpected};
use crate::store::redis::reply::{Reply, fences_of};
use crate::store::redis::scripts::ACQUIRE_ALL;
use crate::store::redis::store::{CONFIRM_WINDOW_MS, Redis};
use crate::value::companion::slot;
use crate::value::error::LockError;
use crate::value::key::LockKey;
use crate::value::time::Moment;

impl Redis {
    /// The number of these keys, from the first on, that one script call can take.
    pub(crate) fn at_once(&self, keys: &[LockKey]) -> usize {
        if !self.slots.load(Ordering::Relaxed) {
            return keys.len();
        }
        let mut slots = keys.iter().map(|key| slot(key.as_str()));
        let first = slots.next();
        first.map_or(0, |first| 1 + slots.take_while(|slot| *slot == first).count())
    }

    /// Asks for all keys of a request, or none. A repeated request is granted again: the script
    /// recognizes its token.
    pub(crate) async fn ask_for_several(
        &self,
        request: &Request,
        budget: Budget,
    ) -> Result<Reply, CallError> {
        let ttl = request.ttl.as_millis().to_string();
        let fenced = if request.fenced { "1" } else { "0" };
        let limits: Vec<_> =
            request.keys().iter().map(|key| key.mode().limit().to_string()).collect();
        let token = request.token.expose();
        let mut args = vec![token, &ttl, fenced, &CONFIRM_WINDOW_MS, &self.fence_retention];
        args.extend(limits.iter().map(String::as_str));
        let sent = Moment::now();
        match self.eval(ACQUIRE_ALL.with(request.keys(), &args), budget).await? {
            Value::Int(1) => Ok(Reply::Granted { sent, fences: Vec::new() }),
            Value::Array(parts) => match parts.as_slice() {
                [Value::Int(left), Value::BulkString(value), Value::Int(nth)] => {
                    let nth = usize::try_from(*nth).unwrap_or_default();
                    Ok(Reply::contended(nth, value, *left, None))
                }
                [Value::Int(nth)] => {
                    let nth = usize::try_from(*nth).ok();
                    let key = nth.and_then(|nth| request.keys().get(nth)).unwrap_or(&request.key);
                    Err(CallError::Final(LockError::KeyNotALock { key: key.clone() }))
                }
                fences => {
                    let fences = fences.iter().map(fences_of).collect::<Result<_, _>>()?;
                    Ok(Reply::Granted { sent, fences })
                }
            },
            other => Err(unexpected(&other)),
        }
    }
}
