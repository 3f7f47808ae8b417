//! Asking a server for a lock, whatever it speaks: the retries, a grant that came too late, and the
//! callers that do not wait while the server is down.

use std::future::ready;
use std::time::Duration;

use crate::protocol::answer::{Answer, Failed};
use crate::protocol::lease::{late, too_slow};
use crate::protocol::request::Request;
use crate::store::backend::{Backend, Facts};
use crate::store::remote::budget::{Budget, Retry};
use crate::store::remote::error::{RemoteError, Transient};
use crate::sys::time::{Instant, Moment};
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason};

/// When callers that are refused because the server is down are told to ask again.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What has become of one request.
pub(crate) type Asked = Result<Answer, RemoteError>;

/// A store on a network. It says how one request is sent, and what is made of the answers is the
/// same for all.
pub(crate) trait RemoteStore: Backend {
    /// Asks once, for a caller that is in no queue. `earlier`: whether the requests before with its
    /// token were applied.
    fn ask_once(
        &self,
        request: &Request,
        budget: Budget,
        earlier: Applied,
    ) -> impl Future<Output = Asked> + Send;

    /// Whether a server that gave no answer is back, for a caller that does not wait and would
    /// otherwise ask with this budget. Fails if the caller is refused without a request.
    fn is_back(
        &self,
        _: &Request,
        _probe: Budget,
    ) -> impl Future<Output = Result<bool, LockError>> + Send {
        ready(Ok(false))
    }
}

/// Asks for a lock. Transient errors are retried within the manager's timeout, or until `until` for
/// a caller that waits.
pub(crate) async fn acquire<S: RemoteStore>(
    server: &S,
    request: &Request,
    until: Option<Instant>,
) -> Result<Answer, Failed> {
    let Facts { timeout, fails_fast, .. } = server.facts();
    let mut is_down = until.is_none() && fails_fast && server.health(request).is_silent;
    let mut probe = None;
    // The first request of a waiter does not wait either.
    if is_down && !request.ask.only_if_free {
        let budget = Budget::probe(server.health(request).round_trip);
        let is_back = Box::pin(server.is_back(request, budget)).await;
        is_down = !is_back.map_err(|error| Failed { error, applied: Applied::No })?;
        probe = is_down.then_some(budget);
    }
    // From here on: a server that is back has all the time for its answer.
    let budget = probe.unwrap_or_else(|| match until {
        Some(until) => Budget::until(until, timeout),
        None => Budget::within(timeout),
    });
    let mut earlier = Applied::No;
    let ask = |budget, earlier| server.ask_once(request, budget, earlier);
    match ask_until(server, request, budget, &mut earlier, ask).await {
        Ok(answer) => Ok(answer.after(earlier)),
        Err(mut error) => {
            if let LockError::Unavailable { retry_after, .. } = &mut error
                && is_down
            {
                *retry_after = Some(RETRY_AFTER);
            }
            Err(Failed { error, applied: earlier })
        }
    }
}

/// Asks until the server has answered, and tells the waiters of each failure. `earlier` keeps
/// whether the requests before were applied.
pub(crate) async fn ask_until<S: RemoteStore, T, F>(
    server: &S,
    request: &Request,
    budget: Budget,
    earlier: &mut Applied,
    mut ask: impl FnMut(Budget, Applied) -> F,
) -> Result<T, LockError>
where
    F: Future<Output = Result<T, RemoteError>>,
    T: AsRef<Answer>,
{
    let mut retry = Retry::new(budget);
    loop {
        let answered = ask(retry.budget, retry.earlier).await;
        let error = match answered.and_then(|answer| in_time(server, request, answer)) {
            Ok(answer) => {
                *earlier = earlier.and(retry.earlier);
                return Ok(answer);
            }
            Err(error) => error,
        };
        if let RemoteError::Transient(transient) = &error {
            let error = RemoteError::Transient(transient.clone()).into_error(&request.ask.key);
            request.ask.events().undecided(Err(error));
        }
        if let Err(error) = retry.after(error).await {
            *earlier = earlier.and(retry.earlier);
            return Err(error.into_error(&request.ask.key));
        }
    }
}

/// Refuses a grant that arrived after its lease had ended.
pub(crate) fn in_time<S: RemoteStore, T: AsRef<Answer>>(
    server: &S,
    request: &Request,
    answer: T,
) -> Result<T, RemoteError> {
    match answer.as_ref() {
        Answer::Granted(grant) if late(grant.sent, grant.ttl, Moment::now()) => {
            let detail = too_slow(grant.ttl);
            let transient = Transient::new(UnavailableReason::TooSlow, detail, Applied::Unknown);
            let server = server.address(request);
            Err(RemoteError::Transient(Transient { server, ..transient }))
        }
        _ => Ok(answer),
    }
}

impl AsRef<Answer> for Answer {
    fn as_ref(&self) -> &Answer {
        self
    }
}
