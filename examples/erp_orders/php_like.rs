//! A client that knows nothing of lockmacro, as an older system in PHP might be: it locks the same
//! keys with the commands that every Redis client has, and yet is excluded by the desks, and
//! excludes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::time::sleep;

use crate::desk::WORK;
use crate::orders::{Request, order_key};
use crate::record::Record;
use crate::report::{Refusal, Worker, failed};

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
                free_within: u64::try_from(left).ok().map(Duration::from_millis),
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
        // The key as the desks spell it, whatever is in the order's number.
        let key = order_key(&request.order_no);
        let locked = self.locked(key.as_str(), &new_value(), request).await;
        locked.unwrap_or_else(|error| Err(failed(error)))
    }
}

/// A value that no other acquisition has, as `uniqid` returns it: the process, and the time.
fn new_value() -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("php-{}-{}", std::process::id(), time.as_nanos())
}

#[cfg(test)]
mod tests {
    use lockmacro_runtime::{Lock, LockManager};
    use lockmacro_tests::Server;

    use super::*;
    use crate::orders::Task;

    fn request(order_no: &str) -> Request {
        Request {
            line: 2,
            order_no: order_no.to_owned(),
            customer: String::new(),
            sku: String::new(),
            quantity: 1,
            task: Task::Audit,
            warehouse: None,
        }
    }

    #[tokio::test]
    async fn it_meets_the_desks_under_the_same_key_whatever_the_order_is_called() {
        let server = Server::start();
        let record = tempfile::NamedTempFile::new().unwrap();
        let record = Record::open(record.path()).unwrap();
        let php = PhpLike::connect("php", &server.url(), record).await.unwrap();
        let locks = LockManager::connect(&server.url()).await.unwrap();
        for order_no in ["SO-2024-1041", "订单7", "A:1 {%}"] {
            let request = request(order_no);
            let held = Lock::new(order_key(order_no)).manager(&locks).acquire().await.unwrap();
            let refused = php.attempt(&request).await;
            assert!(matches!(refused, Err(Refusal::Busy { .. })), "{order_no}: {refused:?}");
            held.release().await.unwrap();
            assert!(php.attempt(&request).await.is_ok(), "{order_no}");
        }
        assert_eq!(server.admin().keys(), Vec::<String>::new());
    }

    #[test]
    fn no_two_acquisitions_have_the_same_value() {
        assert_ne!(new_value(), new_value());
    }
}
