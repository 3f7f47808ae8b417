//! The stores of this crate, through the door of a store of one's own: for the tests of the suite.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::manager::LockManagerBuilder;
use crate::protocol::answer::{Answer, Failed, Released};
use crate::protocol::ask::Ask;
use crate::protocol::request::Request;
use crate::store::backend::{RenewKind, Wait};
use crate::store::handle::Store;
use crate::store::{AcquireRequest, HeldKey, LockStore, Outcome, StoreError, StoreLimits};
use crate::sys::time::Moment;
use crate::value::applied::Applied;
use crate::value::error::LockError;
use crate::value::token::Token;

/// The store that a URL names.
pub struct Builtin(Store);

impl Builtin {
    /// Not connected yet.
    ///
    /// # Errors
    /// As [`LockManager::connect`](crate::LockManager::connect).
    pub fn at(url: &str) -> Result<Self, LockError> {
        LockManagerBuilder::new().at(url).map(Self)
    }

    fn request(held: HeldKey<'_>, ttl: Duration) -> Request {
        Request::new(Self::ask(held, ttl), Token::given(held.token()))
    }

    fn ask(held: HeldKey<'_>, ttl: Duration) -> Ask {
        Ask::new(held.key().into(), ttl, Moment::now())
    }
}

impl LockStore for Builtin {
    async fn acquire(&self, ask: AcquireRequest<'_>) -> Result<Outcome, StoreError> {
        let held = HeldKey::new(ask.key(), ask.token());
        let asked = Ask { fenced: ask.is_fenced(), ..Self::ask(held, ask.ttl()) };
        let request = Request::new(asked, Token::given(held.token()));
        let asked = Arc::clone(&self.0.backend).ask(request, Wait::AtOnce(None));
        match asked.await {
            Ok(Answer::Granted(grant)) => {
                let fence = grant.fences.first().map(|block| block.last().into());
                Ok(Outcome::Granted { fence, ttl: Some(grant.ttl) })
            }
            Ok(Answer::Contended(found)) => {
                Ok(Outcome::Held { by: None, left: found.holder.free_within })
            }
            Ok(Answer::Stale(_)) => Err(StoreError::unknown("it was lost before it was granted")),
            Err(Failed { error, applied: Applied::No }) => Err(StoreError::not_applied(error)),
            Err(Failed { error, .. }) => Err(StoreError::unknown(error)),
        }
    }

    async fn renew(&self, held: HeldKey<'_>, ttl: Duration) -> Result<bool, StoreError> {
        let request = Self::request(held, ttl);
        let renewed = self.0.backend.renew(&request, ttl, RenewKind::Extended(ttl)).await;
        renewed.map_err(StoreError::unknown)
    }

    async fn release(&self, held: HeldKey<'_>, keep: Duration) -> Result<bool, StoreError> {
        let ask = Ask { min_hold: keep, ..Self::ask(held, keep) };
        let request = Request::new(ask, Token::given(held.token()));
        request.note_granted(Moment::now());
        let released = self.0.backend.release(&request).await.map_err(StoreError::unknown)?;
        Ok(released == Released::Held)
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.0.backend.ready().await.map_err(StoreError::unknown)
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::default().fences()
    }

    fn apart(&self) -> Option<Self> {
        Some(Self(self.0.apart()))
    }

    fn close(&self) {
        self.0.backend.close();
    }
}

impl fmt::Debug for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
