//! Locks as keys with leases.

use std::sync::Arc;
use std::time::Duration;

use lockmacro_runtime::store::{
    AcquireRequest, HeldKey, LockStore, Outcome, StoreError, StoreLimits,
};

use crate::api::{self, Entry, Request};
use crate::client::Client;
use crate::error::{CallError, Kind};
use crate::grpc::Connection;
use crate::options::EtcdOptions;
use crate::watch::Watch;
use crate::wire::Answer;

/// Locks in an etcd cluster.
///
/// A lock is a key with the [prefix](EtcdOptions::prefix), whose value is the token of its holder,
/// and which has a lease. Its fence is the revision of the cluster that has created it.
///
/// It asks one node, and the next one when that node does not answer.
#[derive(Debug)]
pub struct EtcdStore {
    client: Arc<Client>,
    watch: Watch,
}

impl EtcdStore {
    /// Makes a store for the cluster with these nodes, each `http://host:port`, or
    /// `https://host:port` with the feature `tls`.
    ///
    /// It checks that a node answers, and that the user may read and write keys with the prefix.
    ///
    /// # Errors
    /// What of this is not so.
    pub async fn connect<E: Into<String>>(
        endpoints: impl IntoIterator<Item = E>,
        options: EtcdOptions,
    ) -> Result<Self, StoreError> {
        let store = Self::new(endpoints, options);
        store.ready().await?;
        Ok(store)
    }

    /// Not connected yet.
    pub(crate) fn new<E: Into<String>>(
        endpoints: impl IntoIterator<Item = E>,
        options: EtcdOptions,
    ) -> Self {
        Self::of(Client::new(endpoints.into_iter().map(Into::into).collect(), options))
    }

    fn of(client: Client) -> Self {
        let client = Arc::new(client);
        Self { watch: Watch::new(Arc::clone(&client)), client }
    }

    fn key(&self, key: &str) -> Vec<u8> {
        [self.client.options.prefix.as_bytes(), key.as_bytes()].concat()
    }

    /// Sends a transaction that gives the key a lease of its own, and ends what lease is left over:
    /// the one before, or the new one if the transaction's condition did not hold.
    ///
    /// Both requests are sent at once, so that two rounds of Raft take the time of one. It is the
    /// client that names the lease. etcd refuses a transaction that has overtaken its lease, and
    /// then it is sent again.
    ///
    /// The lease is sent last, because a node that has little to do begins with it: of what comes at
    /// once, Go runs first what came last. On the machine where this was measured, 3 to 9 % of the
    /// keys of a single caller were sent again, and not 95 %.
    async fn with_lease(
        &self,
        on: &Arc<Connection>,
        ttl: Duration,
        txn: impl Fn(i64) -> Request,
    ) -> Result<Leased, CallError> {
        // Random: another lease with this number would end this lock with its own.
        let random = getrandom::u64().map_err(CallError::not_sent)?;
        let lease = (random >> 1).cast_signed().max(1);
        let done = self.client.call(on, txn(lease));
        let granted = self.client.call(on, api::grant(lease, seconds(ttl)));
        let mut done = done.await;
        let granted = granted.await;
        if done.as_ref().is_err_and(CallError::is_unknown_lease) {
            done = match &granted {
                Ok(_) => self.client.call(on, txn(lease)).await,
                // Whatever became of the lease, the key was not written, and never will be.
                Err(failure) => Err(CallError::not_sent(failure)),
            };
        }
        match &done {
            Ok(done) if api::succeeded(done) => self.revoke_former(on, done),
            // The key may have it.
            Err(failure) if failure.kind == Kind::Unanswered => {}
            _ => self.revoke(on, lease),
        }
        Ok(Leased { done: done?, ttl: granted.ok().as_ref().and_then(api::ttl) })
    }

    /// Ends the lease that the key of a transaction had before, as it has none or another one now.
    fn revoke_former(&self, on: &Arc<Connection>, done: &Answer) {
        if let Some(entry) = holder(done) {
            self.revoke(on, entry.lease);
        }
    }

    /// Ends a lease that no key has. It ends by itself if that fails, so nobody waits for it.
    fn revoke(&self, on: &Arc<Connection>, lease: i64) {
        drop(self.client.call(on, api::revoke(lease)));
    }

    /// Lets a key of the token end a ttl from now on, unless it ends later anyway. Returns how long
    /// etcd keeps it, or `None` if the token does not hold it.
    ///
    /// The key is read before, on the same connection: that proves that the node's leader was no
    /// former one, which would restart a lease that its successor ends. And it is read after that,
    /// as another renewal may have given it another lease.
    async fn extend(
        &self,
        on: &Arc<Connection>,
        held: HeldKey<'_>,
        ttl: Duration,
    ) -> Result<Option<Duration>, CallError> {
        let key = self.key(held.key());
        let read = async || {
            let read = self.client.call(on, api::range(&key)).await?;
            let is_ours = |entry: &Entry| entry.value == held.token() && entry.lease != 0;
            Ok(Entry::of(&read).filter(is_ours).map(|entry| entry.lease))
        };
        let mut lease = read().await?;
        // Each round is due to another renewal of this token.
        while let Some(former) = lease {
            let kept = self.client.call(on, api::keep_alive(former)).await?;
            if let Some(kept) = api::ttl(&kept).filter(|kept| *kept >= ttl) {
                lease = read().await?;
                if lease == Some(former) {
                    return Ok(Some(kept));
                }
                continue;
            }
            // A lease cannot be made longer, but a key can get another one, and keeps its revision.
            let txn = |lease| {
                let is_same = api::has_lease(&key, former);
                api::txn(is_same, api::put(&key, held.token(), lease), api::read(&key))
            };
            let Leased { done, ttl: given } = self.with_lease(on, ttl, txn).await?;
            if api::succeeded(&done) {
                return Ok(Some(given.unwrap_or(ttl)));
            }
            lease = read().await?;
        }
        Ok(None)
    }
}

/// What has become of a transaction, and how long etcd keeps its lease, if that is known.
struct Leased {
    done: Answer,
    ttl: Option<Duration>,
}

impl LockStore for EtcdStore {
    async fn acquire(&self, ask: AcquireRequest<'_>) -> Result<Outcome, StoreError> {
        let key = self.key(ask.key());
        let on = &self.client.connection().await?;
        let txn = |lease| {
            api::txn(api::is_absent(&key), api::put(&key, ask.token(), lease), api::read(&key))
        };
        let Leased { done, ttl } = self.with_lease(on, ask.ttl(), txn).await?;
        let granted =
            |revision: i64, ttl| Outcome::Granted { fence: Some(revision.unsigned_abs()), ttl };
        if api::succeeded(&done) {
            return Ok(granted(api::revision(&done), ttl));
        }
        let entry = holder(&done).ok_or(StoreError::not_applied("an answer without the holder"))?;
        if entry.lease == 0 {
            return Err(StoreError::not_a_lock());
        }
        if entry.value == ask.token() {
            let held = HeldKey::new(ask.key(), ask.token());
            let ttl = self.extend(on, held, ask.ttl()).await?;
            ttl.ok_or(StoreError::not_applied("the lock has ended meanwhile"))?;
            return Ok(granted(entry.created, ttl));
        }
        self.watch.note_held(ask.key(), api::revision(&done));
        let left = self.client.call(on, api::time_to_live(entry.lease)).await;
        // Whole seconds, rounded down.
        let left = left.ok().and_then(|left| u64::try_from(left.int(3) + 1).ok());
        let left = left.map(Duration::from_secs);
        let by = String::from_utf8(entry.value.into()).ok();
        Ok(Outcome::Held { by, left })
    }

    async fn renew(&self, held: HeldKey<'_>, ttl: Duration) -> Result<bool, StoreError> {
        let on = self.client.connection().await?;
        Ok(self.extend(&on, held, ttl).await?.is_some())
    }

    async fn release(&self, held: HeldKey<'_>, keep: Duration) -> Result<bool, StoreError> {
        let key = self.key(held.key());
        let on = &self.client.connection().await?;
        let txn =
            |operation| api::txn(api::is_held_by(&key, held.token()), operation, api::read(&key));
        if keep.is_zero() {
            let done = self.client.call(on, txn(api::delete(&key))).await?;
            if api::succeeded(&done) {
                self.revoke_former(on, &done);
            }
            return Ok(api::succeeded(&done));
        }
        let kept = held.kept();
        let kept = self.with_lease(on, keep, |lease| txn(api::put(&key, &kept, lease))).await?;
        Ok(api::succeeded(&kept.done))
    }

    /// Checks the options, and asks for nothing with all the rights that locks need.
    async fn ready(&self) -> Result<(), StoreError> {
        self.client.check()?;
        self.release(HeldKey::new("", ""), Duration::ZERO).await.map(drop)
    }

    async fn freed(&self, key: &str) {
        self.watch.freed(key, self.key(key)).await;
    }

    fn limits(&self) -> StoreLimits {
        // etcd makes a shorter lease that long, as the servers elect a leader within it.
        const SHORTEST: Duration = Duration::from_secs(2);
        // A watch is lost only with its node.
        const ASK_AGAIN: Duration = Duration::from_secs(2);
        let limits = StoreLimits::default().fences().granularity(Duration::from_secs(1));
        limits.shortest_ttl(SHORTEST).longest_pause(ASK_AGAIN)
    }

    fn name(&self) -> String {
        self.client.name()
    }

    fn apart(&self) -> Option<Self> {
        Some(Self::of(self.client.apart()))
    }

    fn close(&self) {
        self.watch.close();
        self.client.close();
    }
}

/// The entry of a transaction's key: before it was written, or as it was read.
fn holder(done: &Answer) -> Option<Entry> {
    Entry::of(&api::first(done)?)
}

/// A time in whole seconds, rounded up.
fn seconds(time: Duration) -> i64 {
    time.as_nanos().div_ceil(1_000_000_000).try_into().unwrap_or(i64::MAX)
}
