//! The trait of a store of one's own, as a trait object: each future is in a box.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::answer::StoreFuture;
use crate::store::lock_store::contract::LockStore;
use crate::store::lock_store::error::StoreError;
use crate::store::lock_store::messages::{AcquireRequest, HeldKey, Outcome};

/// A [`LockStore`] whose type is not known.
pub(crate) trait ErasedStore: fmt::Debug + Send + Sync {
    fn acquire<'a>(
        &'a self,
        ask: AcquireRequest<'a>,
    ) -> StoreFuture<'a, Result<Outcome, StoreError>>;

    fn renew<'a>(
        &'a self,
        held: HeldKey<'a>,
        ttl: Duration,
    ) -> StoreFuture<'a, Result<bool, StoreError>>;

    fn release<'a>(
        &'a self,
        held: HeldKey<'a>,
        keep: Duration,
    ) -> StoreFuture<'a, Result<bool, StoreError>>;

    fn ready(&self) -> StoreFuture<'_, Result<(), StoreError>>;

    fn freed<'a>(&'a self, key: &'a str) -> StoreFuture<'a, ()>;

    fn apart(&self) -> Option<Arc<dyn ErasedStore>>;

    fn close(&self);
}

impl<S: LockStore> ErasedStore for S {
    fn acquire<'a>(
        &'a self,
        ask: AcquireRequest<'a>,
    ) -> StoreFuture<'a, Result<Outcome, StoreError>> {
        Box::pin(LockStore::acquire(self, ask))
    }

    fn renew<'a>(
        &'a self,
        held: HeldKey<'a>,
        ttl: Duration,
    ) -> StoreFuture<'a, Result<bool, StoreError>> {
        Box::pin(LockStore::renew(self, held, ttl))
    }

    fn release<'a>(
        &'a self,
        held: HeldKey<'a>,
        keep: Duration,
    ) -> StoreFuture<'a, Result<bool, StoreError>> {
        Box::pin(LockStore::release(self, held, keep))
    }

    fn ready(&self) -> StoreFuture<'_, Result<(), StoreError>> {
        Box::pin(LockStore::ready(self))
    }

    fn freed<'a>(&'a self, key: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(LockStore::freed(self, key))
    }

    fn apart(&self) -> Option<Arc<dyn ErasedStore>> {
        LockStore::apart(self).map(|apart| Arc::new(apart) as _)
    }

    fn close(&self) {
        LockStore::close(self);
    }
}
