//! Giving back: at every node that the token may have reached, whether it has answered or not.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::ballot::Nodes;
use super::round::Round;
use super::tally::{majority, no_quorum};
use super::{NODE, Redlock, bits, late};
use crate::backend::{Claim, Released};
use crate::error::LockError;

impl Redlock {
    /// Takes the token away from all nodes; tells what a majority found. The claim is settled when
    /// every node has answered that it may have reached, and nothing can arrive there any more.
    pub(crate) async fn release(&self, claim: &Claim) -> Result<Released, LockError> {
        let ballot = claim.ballot();
        claim.settle(false);
        ballot.close();
        let asked = ballot.asked();
        // Who asks again uses another token, since an unanswered release may arrive late.
        ballot.retire(asked);
        // The last token is the one that may hold the lock.
        let papers: Arc<[Claim]> = (0..=ballot.token()).map(|nth| claim.paper(nth)).collect();
        let mut round = Round::new(bits(asked).map(|nth| {
            let redis = &self.nodes.all[nth].redis;
            let (ballot, papers) = (&ballot, &papers);
            (nth, async move {
                let landed = ballot.landed(nth, NODE).await;
                let (mut found, mut all) = (Ok(Released::NotHeld), Ok(()));
                for paper in papers.iter() {
                    found = redis.release(paper).await;
                    all = all.and(found.clone().map(drop));
                }
                (landed, all.and(found))
            })
        }));
        let mut count = Found::new(self.nodes.all.len(), asked);
        let brief = Instant::now() + NODE;
        let mut landed = true;
        loop {
            let next = match count.told() {
                None => Ok(round.next().await),
                // Who is slow is left to whoever tries on in the background.
                Some(_) => timeout_at(brief, round.next()).await,
            };
            let Ok(Some((nth, (all_landed, found)))) = next else { break };
            landed &= all_landed;
            count.add(nth, found);
        }
        if landed && count.open == 0 {
            ballot.take_doubtful();
        }
        claim.settle(landed && count.open == 0 && !ballot.is_unknown());
        let told = count.told();
        told.ok_or_else(|| no_quorum(&self.nodes.names, count.errors.into_iter()))
    }

    /// Gives back what an attempt in vain has written, so that the next one can be made; fails when
    /// that has failed too often.
    pub(super) async fn give_back(&self, claim: &Claim, within: Duration) -> Result<(), LockError> {
        let ballot = claim.ballot();
        claim.settle(false);
        ballot.close();
        let last = ballot.token();
        let papers: Vec<_> = (0..=last).map(|nth| claim.paper(nth)).collect();
        let (fresh, doubtful) = (ballot.take_fresh(), ballot.take_doubtful());
        let nodes = &self.nodes.all;
        let mut open = fresh | doubtful;
        let mut round = Round::new(bits(open).map(|nth| {
            let (ballot, redis) = (&ballot, &nodes[nth].redis);
            let (fresh, doubtful) = (fresh & 1 << nth != 0, doubtful & 1 << nth != 0);
            let (earlier, in_use) = papers.split_at(last as usize);
            // A token that may be asked with again is withdrawn only where it may be: the answer may be
            // missing, and then another one is used.
            let earlier = if doubtful { earlier } else { &[] };
            let papers = earlier.iter().chain(in_use.iter().filter(move |_| fresh));
            (nth, async move {
                let mut done = ballot.landed(nth, within).await;
                for paper in papers {
                    done &= redis.withdraw(paper).await.is_ok();
                }
                done
            })
        }));
        let until = Instant::now() + within * 2;
        while let Ok(Some((nth, done))) = timeout_at(until, round.next()).await {
            if done {
                open &= !(1 << nth);
            }
        }
        ballot.doubt(open);
        if open & fresh != 0 && !ballot.use_another_token() {
            let mut errors = vec![None; nodes.len()];
            bits(open).for_each(|nth| errors[nth] = Some(late("giving back")));
            return Err(no_quorum(&self.nodes.names, errors.into_iter()));
        }
        claim.settle(open == 0 && !ballot.is_unknown());
        Ok(())
    }
}

/// What a release found so far.
struct Found {
    held: usize,
    unconfirmed: usize,
    not_held: usize,
    /// Nodes that have not answered.
    open: Nodes,
    errors: Vec<Option<LockError>>,
}

impl Found {
    fn new(nodes: usize, asked: Nodes) -> Self {
        // Where the token never was it is not.
        let not_held = nodes - bits(asked).count();
        Self { held: 0, unconfirmed: 0, not_held, open: asked, errors: vec![None; nodes] }
    }

    fn add(&mut self, nth: usize, found: Result<Released, LockError>) {
        match found {
            Ok(Released::Held) => self.held += 1,
            Ok(Released::Unconfirmed) => self.unconfirmed += 1,
            Ok(Released::NotHeld) => self.not_held += 1,
            Err(error) => {
                self.errors[nth] = Some(error);
                return;
            }
        }
        self.open &= !(1 << nth);
    }

    /// What a majority found, if that is known.
    fn told(&self) -> Option<Released> {
        let majority = majority(self.errors.len());
        if self.held >= majority {
            Some(Released::Held)
        } else if self.not_held >= majority {
            Some(Released::NotHeld)
        } else if self.held + self.unconfirmed >= majority {
            Some(Released::Unconfirmed)
        } else {
            None
        }
    }
}
