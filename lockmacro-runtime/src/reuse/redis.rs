//! The value that a holder keeps for others: a field for each function in a companion key.

use std::slice;
use std::time::Duration;

use redis::FromRedisValue;

use crate::protocol::request::Request;
use crate::reuse::value::{KeptText, ValueOf};
use crate::store::redis::client::script::{Script, ScriptCall};
use crate::store::redis::reply::parsed;
use crate::store::redis::store::Redis;
use crate::store::remote::budget::Retry;
use crate::store::remote::error::RemoteError;
use crate::value::error::LockError;

static VALUE: Script = Script::new(include_str!("value.lua"), &["k"]);

pub(crate) async fn kept(
    redis: &Redis,
    ValueOf { key, name }: ValueOf<'_>,
) -> Result<Option<KeptText>, LockError> {
    let args = [name];
    let read = VALUE.with(slice::from_ref(key), &args);
    let kept: Result<Option<(String, u64)>, _> = until_answered(redis, read).await;
    let kept = kept.map_err(|error| error.into_error(key))?;
    let text = |(text, left): (String, u64)| KeptText {
        text: text.into(),
        left: Duration::from_millis(left),
    };
    Ok(kept.map(text))
}

pub(crate) async fn keep(
    redis: &Redis,
    request: &Request,
    ValueOf { key, name }: ValueOf<'_>,
    value: &str,
    time: Duration,
) -> Result<bool, LockError> {
    let time = time.as_millis().to_string();
    let args = [name, request.token.secret.expose(), value, &time];
    let keep = VALUE.with(slice::from_ref(key), &args);
    let is_kept = until_answered(redis, keep).await;
    is_kept.map_err(|error| error.into_error(key))
}

async fn until_answered<T: FromRedisValue>(
    redis: &Redis,
    call: ScriptCall<'_>,
) -> Result<T, RemoteError> {
    let eval = |budget, _| redis.eval(call, budget);
    Retry::new(redis.budget()).repeat(eval).await.and_then(parsed)
}
