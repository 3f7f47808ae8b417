//! A request on several keys that one call cannot take together, in parts. A release or renewal is
//! sent to all parts at the same time, and a failure of one does not stop the others.

use futures_util::future::join_all;

use crate::protocol::answer::{Asked, Released};
use crate::protocol::request::Request;
use crate::store::dispatch::Store;
use crate::store::join::held_all;
use crate::value::applied::Applied;
use crate::value::error::LockError;

impl Store {
    /// Whether a request has more keys than a single call can take.
    pub(super) fn is_in_parts(&self, request: &Request) -> bool {
        !request.several().is_empty() && self.at_once(request.several()) < request.several().len()
    }

    pub(super) fn release_parts<'a>(
        &'a self,
        request: &'a Request,
    ) -> Asked<'a, Result<Released, LockError>> {
        Box::pin(async move {
            let parts = self.parts(request);
            let all = join_all(parts.iter().map(|part| self.release(part))).await;
            let found =
                all.into_iter().try_fold(Released::Held, |found, part| Ok(found.max(part?)));
            let applied = parts.iter().map(Request::applied).fold(Applied::No, Applied::and);
            if applied.is_known() {
                request.set_applied(applied);
            }
            found
        })
    }

    pub(super) fn renew_parts<'a>(
        &'a self,
        request: &'a Request,
        renew: impl for<'b> Fn(&'b Self, &'b Request) -> Asked<'b, Result<bool, LockError>>
        + Send
        + Sync
        + 'a,
    ) -> Asked<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let parts = self.parts(request);
            held_all(parts.iter().map(|part| renew(self, part))).await
        })
    }

    fn parts(&self, request: &Request) -> Vec<Request> {
        let (mut parts, mut rest) = (Vec::new(), request.keys());
        while !rest.is_empty() {
            let (part, others) = rest.split_at(self.at_once(rest));
            parts.push(request.part(part));
            rest = others;
        }
        parts
    }
}
