//! What the caller of a lock with reuse gets when it is busy or lost, for expansions.

use serde::{Serialize, de::DeserializeOwned};

use crate::reuse::lock::ReusingLock;
use crate::run::with_policy::{WithPolicy, with_policy};
use crate::run_policy::{MapErr, Recovering, Report, Returnable, RunPolicy, Skip};
use crate::value::error::LockError;
use crate::value::loss::Lost;

impl<W, H> WithPolicy<ReusingLock, W, H> {
    /// As [`ReusingLock::run`].
    pub fn run<B, T, E>(self, body: B) -> impl Future<Output = Result<T, E>>
    where
        B: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        Result<T, E>: Returnable<RunPolicy<W, H>>,
    {
        self.start.run_under(self.policy, body)
    }
}

with_policy!(ReusingLock);
