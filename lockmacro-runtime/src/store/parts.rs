//! Several keys of which a server wants some apart. What is done with all of them is done with all
//! parts at the same time, whatever becomes of the others.

use crate::store::join::all;
use crate::store::join::held_all;

use crate::protocol::answer::{Asked, Released};
use crate::protocol::request::Claim;
use crate::store::dispatch::Backend;
use crate::value::error::LockError;

impl Backend {
    /// Whether a claim is more than can be asked for at once.
    pub(crate) fn is_in_parts(&self, claim: &Claim) -> bool {
        !claim.several().is_empty() && self.at_once(claim.several()) < claim.several().len()
    }

    pub(crate) fn release_parts<'a>(
        &'a self,
        claim: &'a Claim,
    ) -> Asked<'a, Result<Released, LockError>> {
        Box::pin(async move {
            let parts = self.parts(claim);
            let mut found = Ok(Released::Held);
            all(parts.iter().map(|part| self.release(part)), |part| match (&mut found, part) {
                (Ok(found), Ok(part)) => *found = part.max(*found),
                (found, Err(error)) => *found = Err(error),
                (Err(_), Ok(_)) => {}
            })
            .await;
            if parts.iter().all(Claim::is_settled) {
                claim.settle(true);
            }
            found
        })
    }

    pub(crate) fn renew_parts<'a>(
        &'a self,
        claim: &'a Claim,
        renew: impl for<'b> Fn(&'b Self, &'b Claim) -> Asked<'b, Result<bool, LockError>>
        + Send
        + Sync
        + 'a,
    ) -> Asked<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let parts = self.parts(claim);
            held_all(parts.iter().map(|part| renew(self, part))).await
        })
    }

    fn parts(&self, claim: &Claim) -> Vec<Claim> {
        let (mut parts, mut rest) = (Vec::new(), claim.keys());
        while !rest.is_empty() {
            let (part, others) = rest.split_at(self.at_once(rest));
            parts.push(claim.part(part));
            rest = others;
        }
        parts
    }
}
