//! The functions that have jobs.

#[cfg(feature = "redis")]
use std::collections::BTreeSet;
#[cfg(feature = "redis")]
use std::pin::pin;

#[cfg(feature = "redis")]
use futures_util::stream::TryStreamExt;
#[cfg(feature = "postgres")]
use tokio_postgres::Row;

#[cfg(feature = "redis")]
use crate::defer::queue::redis::requests::CALLS;
use crate::inspect::found::Listing;
use crate::inspect::inspector::Inspector;
#[cfg(feature = "postgres")]
use crate::inspect::postgres::{listing, look, one_more};
#[cfg(feature = "redis")]
use crate::inspect::redis::{scan, text};
#[cfg(feature = "postgres")]
use crate::store::postgres::client::values::{column, values};
#[cfg(feature = "postgres")]
use crate::store::postgres::store::Postgres;
#[cfg(feature = "redis")]
use crate::store::redis::store::Redis;
use crate::value::error::LockError;

impl Inspector {
    /// Returns the names of the functions that have jobs in the locks' own store, at most `limit`.
    pub async fn job_functions(&self, limit: usize) -> Result<Listing<String>, LockError> {
        #[cfg(feature = "redis")]
        if let Some(redis) = self.store().downcast_ref() {
            return on_redis(redis, limit).await;
        }
        #[cfg(feature = "postgres")]
        if let Some(postgres) = self.store().downcast_ref() {
            return in_postgres(postgres, limit).await;
        }
        // In a build without these stores nobody is asked.
        let _ = limit;
        Err(self.uninspectable())
    }
}

#[cfg(feature = "redis")]
async fn on_redis(redis: &Redis, limit: usize) -> Result<Listing<String>, LockError> {
    let mut functions = BTreeSet::new();
    let mut skipped = Vec::new();
    let pattern = [CALLS, "*"].concat();
    let mut scan = pin!(scan(redis, &pattern, "hash").await?);
    while functions.len() <= limit
        && let Some(names) = scan.try_next().await?
    {
        let names = names.into_iter().filter_map(|name| text(name, &mut skipped));
        functions.extend(names.filter_map(|name| Some(name.strip_prefix(CALLS)?.to_owned())));
    }
    let truncated = functions.len() > limit;
    Ok(Listing { items: functions.into_iter().take(limit).collect(), skipped, truncated })
}

#[cfg(feature = "postgres")]
async fn in_postgres(postgres: &Postgres, limit: usize) -> Result<Listing<String>, LockError> {
    let most = one_more(limit);
    let read = |row: &Row| column(row, 0);
    Ok(listing(look(postgres, "look_for_functions", values![most], "", read).await?, limit))
}
