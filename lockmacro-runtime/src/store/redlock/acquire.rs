//! Requests a lock from all nodes at once, and repeats the attempt while that may help.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep_until;

use super::store::{Redlock, RetryDelay, Round};
use crate::protocol::answer::{Answer, Contention, Failed, Grant, Queueing};
use crate::protocol::lease;
use crate::protocol::request::Request;
use crate::store::redlock::attempts::Attempts;
use crate::store::redlock::node::replaced;
use crate::store::redlock::quorum::{NodeError, Rival, Tally, Verdict, majority, no_quorum};
use crate::sys::time::{Instant, Moment};
use crate::value::applied::Applied;
use crate::value::error::{LockError, UnavailableReason};
use crate::value::fence::Fence;

/// Why an attempt failed. Its tokens are released.
enum Failure {
    Contended(Rival),
    /// `transient` when another attempt may succeed.
    Fault {
        error: LockError,
        transient: bool,
    },
}

impl Redlock {
    /// Requests a lock on one key. While too few nodes answer, or no caller has a majority, it
    /// repeats the attempt until the manager's timeout is over, or until `until`.
    pub(super) async fn acquire(
        &self,
        request: &Request,
        until: Option<Instant>,
    ) -> Result<Answer, Failed> {
        let longest = Instant::now() + self.timeout;
        let until = until.map_or(longest, |until| until.min(longest));
        self.attempts(request, Some(until), false).await
    }

    /// Repeats attempts for at most `wait`, at random intervals. There is no queue over several
    /// nodes, and callers that repeat at the same moment would split the votes again.
    pub(super) async fn wait(&self, request: &Request, wait: Duration) -> Result<Answer, Failed> {
        self.attempts(request, Instant::now().checked_add(wait), true).await
    }

    async fn attempts(
        &self,
        request: &Request,
        until: Option<Instant>,
        waits: bool,
    ) -> Result<Answer, Failed> {
        self.check(request.ask.ttl).map_err(|error| Failed { error, applied: Applied::No })?;
        let mut pause = RetryDelay::new(self.usual_round_trip());
        // From here on the attempts know which tokens may be left.
        request.token.set_applied(Applied::No);
        loop {
            let over = until.is_some_and(|until| until <= Instant::now());
            let left = match self.attempt(request).await {
                Ok(grant) => return Ok(Answer::Granted(grant)),
                Err(Failure::Contended(Rival { holder, split, nobody })) => {
                    let left = holder.free_within;
                    let holder = if nobody { Box::default() } else { Box::new(holder) };
                    // With split votes nobody may have the lock.
                    if over || !waits && !split {
                        // There is no queue, so no waiter is before this one.
                        let queue = if waits { Queueing::Behind(0) } else { Queueing::Outside };
                        let earlier = request.token.applied();
                        let contention =
                            Contention { holder, queue, earlier, ..Default::default() };
                        return Ok(Answer::Contended(contention));
                    }
                    if split || nobody {
                        request.ask.events().undecided(Ok(&holder))
                    } else {
                        request.ask.events().contended(&holder, 0)
                    }
                    left
                }
                Err(Failure::Fault { error, transient }) => {
                    let young = self.nodes.vote_in(majority(self.count()));
                    let in_time = until.is_none_or(|until| Instant::now() + young <= until);
                    if over || !transient || !in_time {
                        return Err(Failed { error, applied: request.token.applied() });
                    }
                    request.ask.events().undecided(Err(error));
                    None
                }
            };
            let pause = Instant::now() + pause.next(left);
            sleep_until(until.map_or(pause, |until| until.min(pause))).await;
        }
    }

    /// Asks all nodes once. Releases the token everywhere if there is no majority.
    async fn attempt(&self, request: &Request) -> Result<Grant, Failure> {
        let attempts = request.attempts::<Attempts>();
        let within = self.rules.node.min(request.ask.ttl / 10);
        let token = attempts.begin();
        let attempt = request.attempt(token);
        let sent = Moment::now();
        let until = Instant::now() + within;
        let mut round = Round::new((0..self.count()).map(|nth| {
            let nodes = Arc::clone(&self.nodes);
            let attempt = attempt.clone();
            (nth, nodes.vote(nth, (Arc::clone(&attempts), token), attempt))
        }));
        let mut tally = Tally::of(self.count());
        let verdict = counted(&mut round, &mut tally, until, Tally::verdict).await;
        self.note_round_trip(sent.elapsed());
        let failure = match verdict {
            Verdict::Granted => {
                // Later answers add to the majority.
                round.go_on();
                match self.confirmed(request, &attempt, sent, &tally, within).await {
                    Ok(grant) => return Ok(grant),
                    Err(failure) => failure,
                }
            }
            Verdict::Contended => {
                // The first answers may name different holders, of which one has the lock.
                let rival = counted(&mut round, &mut tally, until, Tally::rival).await;
                round.go_on();
                Failure::Contended(rival)
            }
            Verdict::NoQuorum => {
                // The other answers only complete the error.
                let fault = |tally: &Tally| tally.fault(&self.nodes.names);
                let (error, transient) = counted(&mut round, &mut tally, until, fault).await;
                round.go_on();
                Failure::Fault { error, transient }
            }
        };
        self.withdraw(request).await;
        Err(failure)
    }

    /// The grant of a majority, if some of its lease is left.
    async fn confirmed(
        &self,
        request: &Request,
        attempt: &Request,
        sent: Moment,
        tally: &Tally,
        within: Duration,
    ) -> Result<Grant, Failure> {
        let (won, fences) = tally.won();
        if let Some(fences) = fences {
            self.raise(attempt, &won, fences.last(), within).await?;
            request.attempts::<Attempts>().note_fence(fences.last());
        }
        let ttl = request.ask.ttl;
        if lease::late(sent, ttl, Moment::now()) {
            let server = Some(self.servers());
            let reason = UnavailableReason::TooSlow;
            let error = LockError::unavailable_at(server, reason, lease::too_slow(ttl));
            return Err(Failure::Fault { error, transient: true });
        }
        let fences = fences.into_iter().collect();
        Ok(Grant { sent, at: sent, ttl, earlier: Applied::No, fences })
    }

    /// The second round of a fence: from now on a majority of nodes makes larger fences only.
    ///
    /// Without this round, two grants could get the same fence. The largest fence of one majority
    /// may come from a node that is not in the other majority. With it, two grants share a node in
    /// their second rounds, where the later grant read its fence after the earlier one wrote it.
    async fn raise(
        &self,
        attempt: &Request,
        won: &[usize],
        fence: Fence,
        within: Duration,
    ) -> Result<(), Failure> {
        let mut errors: Vec<Option<LockError>> = vec![None; self.count()];
        let mut round =
            Round::new(won.iter().map(|nth| (*nth, self.nodes.all[*nth].raise(attempt, fence))));
        let until = Instant::now() + within;
        let mut raised = 0;
        while let Some((nth, answer)) = round.next_until(until).await {
            match answer {
                // A new connection may lead to a server that counts already under another name.
                Ok(true) if !self.nodes.is_as_it_was(nth) => errors[nth] = Some(replaced()),
                Ok(true) => raised += 1,
                Ok(false) => {
                    let reason = UnavailableReason::TooSlow;
                    let detail = "the lock was gone from this node";
                    errors[nth] = Some(LockError::because(reason, detail));
                }
                Err(error) => errors[nth] = Some(error),
            }
            if raised >= majority(self.count()) {
                return Ok(());
            }
        }
        for nth in won {
            let late = || LockError::because(UnavailableReason::Timeout, "raising the fence");
            errors[*nth].get_or_insert_with(late);
        }
        let error = no_quorum(&self.nodes.names, errors.into_iter());
        Err(Failure::Fault { error, transient: true })
    }
}

/// Counts votes until they answer a question. After the deadline, or the last vote, a node that has
/// not answered counts as failed.
async fn counted<T>(
    round: &mut Round<'_, Result<Answer, NodeError>>,
    tally: &mut Tally,
    until: Instant,
    answer: impl Fn(&Tally) -> Option<T>,
) -> T {
    loop {
        if let Some(answer) = answer(tally) {
            return answer;
        }
        match round.next_until(until).await {
            Some((nth, vote)) => tally.add(nth, vote),
            None => tally.end(),
        }
    }
}
