//! A client that knows nothing of lockmacro, as an older system in PHP might be: it locks the same
//! keys with the commands that every Redis client has, and is excluded and excludes all the same.

use std::time::Duration;

use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::desk::WORK;
use crate::orders::Request;
use crate::record::Record;
use crate::report::{Refusal, Worker};

/// Frees the lock only if it still holds our own value.
const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

#[derive(Debug)]
pub struct PhpLike {
    name: String,
    connection: MultiplexedConnection,
    record: Record,
}

impl PhpLike {
    pub async fn connect(name: &str, url: &str, record: Record) -> Result<Self, RedisError> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { name: name.to_owned(), connection, record })
    }

    /// Audits an order under `SET key value NX EX 300`.
    async fn locked(
        &self,
        key: &str,
        value: &str,
        request: &Request,
    ) -> Result<Result<(), Refusal>, RedisError> {
        let mut redis = self.connection.clone();
        let mut set = redis::cmd("SET");
        set.arg(key).arg(value).arg("NX").arg("EX").arg(300);
        if !set.query_async::<bool>(&mut redis).await? {
            let left: i64 = redis::cmd("PTTL").arg(key).query_async(&mut redis).await?;
            return Ok(Err(Refusal::Busy {
                holder: "somebody".to_owned(),
                retry_after: u64::try_from(left).ok().map(Duration::from_millis),
                message: format!("order {} is locked", request.order_no),
            }));
        }
        let done = self.body(request).await;
        let mut release = redis::cmd("EVAL");
        release.arg(RELEASE).arg(1).arg(key).arg(value);
        let released: i64 = release.query_async(&mut redis).await?;
        if released == 0 {
            return Ok(Err(Refusal::Failed("the lock was gone before its time".to_owned())));
        }
        Ok(done)
    }

    async fn body(&self, request: &Request) -> Result<(), Refusal> {
        let _presence = self.record.enter(&self.name, request).map_err(failed)?;
        sleep(WORK).await;
        Ok(())
    }
}

impl Worker for PhpLike {
    async fn attempt(&self, request: &Request) -> Result<(), Refusal> {
        // Only ours among all values: the process, and one line of its file.
        let value = format!("php-{}-{}", std::process::id(), request.line);
        let key = format!("order:{}", request.order_no);
        self.locked(&key, &value, request).await.unwrap_or_else(|error| Err(failed(error)))
    }
}

fn failed(error: impl std::fmt::Display) -> Refusal {
    Refusal::Failed(error.to_string())
}
