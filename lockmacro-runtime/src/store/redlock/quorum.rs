//! The votes of a Redlock's nodes, and the verdict that follows from them. No I/O.

use std::time::Duration;

use crate::protocol::answer::Answer;
use crate::store::remote::error::{RemoteError, Transient};
use crate::value::applied::Applied;
use crate::value::error::{LockError, NodeReply, UnavailableReason};
use crate::value::fence::FenceBlock;
use crate::value::holder::Holder;
use crate::value::key::LockKey;

/// Why a node has not answered, and whether the request was applied all the same.
#[derive(Debug, Clone)]
pub(crate) struct NodeError {
    pub(crate) error: Box<LockError>,
    pub(crate) applied: Applied,
    /// Another try may succeed.
    pub(crate) transient: bool,
}

impl NodeError {
    /// A failure to ask the node about this key.
    pub(crate) fn of(error: RemoteError, key: &LockKey) -> Self {
        let applied = error.applied();
        let transient = match &error {
            RemoteError::Transient(Transient { reason, .. }) => {
                *reason != UnavailableReason::Protocol
            }
            error => matches!(error, RemoteError::Split(_)),
        };
        Self { error: Box::new(error.into_error(key)), applied, transient }
    }

    /// Whether the node is up, and votes later.
    pub(crate) fn is_young(&self) -> bool {
        self.error.reason() == Some(UnavailableReason::Restarted)
    }
}

/// A node's vote; `None` while it has not answered.
type Cast = Option<Result<Answer, NodeError>>;

/// The votes so far, in the order of the nodes.
#[derive(Debug)]
pub(crate) struct Tally {
    votes: Box<[Cast]>,
}

/// Result of a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority of all nodes has granted the lock.
    Granted,
    /// A majority has answered, and other holders prevent a majority for this lock.
    Contended,
    /// Fewer nodes than a majority have answered.
    NoQuorum,
}

/// The holder at the most nodes, and whether it has the lock.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rival {
    pub(crate) holder: Holder,
    /// The holder is not known to have a majority: others may have asked at the same moment.
    pub(crate) split: bool,
    /// The holder cannot have a majority, whatever the nodes without an answer hold. So no caller
    /// holds the lock.
    pub(crate) nobody: bool,
}

pub(crate) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whether a majority is left when `out` nodes fail for good.
pub(crate) fn may_be_had(out: usize, nodes: usize) -> bool {
    out + majority(nodes) <= nodes
}

impl Tally {
    pub(crate) fn of(nodes: usize) -> Self {
        Self { votes: (0..nodes).map(|_| None).collect() }
    }

    pub(crate) fn add(&mut self, nth: usize, vote: Result<Answer, NodeError>) {
        self.votes[nth] = Some(vote);
    }

    /// Ends the vote: a node that has not answered counts as failed.
    pub(crate) fn end(&mut self) {
        for vote in self.votes.iter_mut().filter(|vote| vote.is_none()) {
            let error = Box::new(LockError::because(UnavailableReason::Timeout, "asked"));
            *vote = Some(Err(NodeError { error, applied: Applied::Unknown, transient: true }));
        }
    }

    /// The verdict, as soon as no further answer can change it.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let granted = self.count(|vote| matches!(vote, Some(Ok(Answer::Granted(_)))));
        let answered = self.count(is_answer);
        let open = self.count(Option::is_none);
        let majority = majority(self.votes.len());
        if granted >= majority {
            Some(Verdict::Granted)
        } else if granted + open >= majority {
            None
        } else if answered >= majority {
            Some(Verdict::Contended)
        } else if answered + open < majority {
            Some(Verdict::NoQuorum)
        } else {
            None
        }
    }

    /// The nodes that have granted the lock, and the fences that are larger than all that any of
    /// these nodes issued before.
    pub(crate) fn won(&self) -> (Vec<usize>, Option<FenceBlock>) {
        let granted = self.votes.iter().enumerate().filter_map(|(nth, vote)| match vote {
            Some(Ok(Answer::Granted(grant))) => Some((nth, &grant.fences)),
            _ => None,
        });
        let (won, fences): (_, Vec<_>) = granted.unzip();
        (won, fences.into_iter().flatten().copied().reduce(FenceBlock::new_at_both))
    }

    /// The holder at the most nodes, once it is known to have a majority, or no further answer can
    /// show one that has.
    pub(crate) fn rival(&self) -> Option<Rival> {
        let held = self.votes.iter().filter_map(|vote| match vote {
            Some(Ok(Answer::Contended(it))) => Some((it.value, &*it.holder)),
            _ => None,
        });
        let of = |value| held.clone().filter(move |(other, _)| *other == value);
        let most = held.clone().max_by_key(|(value, _)| of(*value).count());
        let known = most.map_or(0, |(value, _)| of(value).count());
        let open = self.count(Option::is_none);
        let majority = majority(self.votes.len());
        if known < majority && known + open >= majority {
            return None;
        }
        let Some((value, holder)) = most else { return Some(Rival::default()) };
        let mut left = Some(Duration::ZERO);
        for (_, theirs) in of(value) {
            left = left.zip(theirs.free_within).map(|(left, theirs)| left.max(theirs));
        }
        let unknown = self.votes.len() - self.count(is_answer);
        let split = known < majority;
        let nobody = known + unknown < majority;
        let holder = Holder { free_within: left, ..holder.clone() };
        Some(Rival { holder, split, nobody })
    }

    /// Once every node has answered, or counts as failed: the errors, node by node, or the error
    /// about the key, when a majority agrees on it; and whether another try may reach a majority.
    pub(crate) fn fault(&self, names: &[String]) -> Option<(LockError, bool)> {
        if self.votes.iter().any(Option::is_none) {
            return None;
        }
        let error = |vote: &Cast| Some((*vote.as_ref()?.as_ref().err()?.error).clone());
        let errors = self.votes.iter().map(error);
        let is_wrong_key = |error: &_| matches!(error, LockError::KeyNotALock { .. });
        let mut wrong_keys = errors.clone().flatten().filter(is_wrong_key);
        let wrong_key = wrong_keys.nth(majority(self.votes.len()) - 1);
        let lasting = |vote: &_| matches!(vote, Some(Err(NodeError { transient: false, .. })));
        let is_transient = may_be_had(self.count(lasting), self.votes.len());
        Some((wrong_key.unwrap_or_else(|| no_quorum(names, errors)), is_transient))
    }

    fn count(&self, is_counted: impl Fn(&Cast) -> bool) -> usize {
        self.votes.iter().filter(|vote| is_counted(vote)).count()
    }
}

/// Whether a node has granted or refused the lock.
fn is_answer(vote: &Cast) -> bool {
    matches!(vote, Some(Ok(_)))
}

/// The error with each node's reply; `None` for a node that has answered.
pub(crate) fn no_quorum(
    names: &[String],
    errors: impl Iterator<Item = Option<LockError>>,
) -> LockError {
    let reply = |(node, error): (&String, _)| NodeReply { node: node.clone(), error };
    LockError::no_quorum(names.iter().zip(errors).map(reply).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::answer::Contention;
    use crate::protocol::ask::Ask;
    use crate::protocol::request::Request;
    use crate::sys::time::Moment;
    use crate::value::limits::TTL_MAX;
    use crate::value::token::hash_of;

    fn granted() -> Result<Answer, NodeError> {
        let sent = Moment::at(Duration::ZERO);
        let request = Request::of(Ask::new("k".into(), TTL_MAX, sent));
        Ok(Answer::granted(&request, sent, Vec::new()))
    }

    fn other(owner: &str, seconds: u64) -> Holder {
        Holder { free_within: Some(Duration::from_secs(seconds)), ..Holder::new(owner) }
    }

    fn held(holder: Holder, value: u64) -> Result<Answer, NodeError> {
        let holder = Box::new(holder);
        Ok(Answer::Contended(Contention { holder, value, ..Default::default() }))
    }

    fn contended(owner: &str, seconds: u64) -> Result<Answer, NodeError> {
        held(other(owner, seconds), hash_of(owner.as_bytes()))
    }

    fn failed() -> Result<Answer, NodeError> {
        let error = Box::new(LockError::because(UnavailableReason::Timeout, ""));
        Err(NodeError { error, applied: Applied::Unknown, transient: true })
    }

    /// A vote in a text: `g` granted, `b` contended, `s` failed, `.` no answer yet.
    fn tally(votes: &str) -> Tally {
        let mut tally = Tally::of(votes.len());
        for (nth, votes) in votes.chars().enumerate() {
            match votes {
                'g' => tally.add(nth, granted()),
                'b' => tally.add(nth, contended("web", 9)),
                's' => tally.add(nth, failed()),
                _ => {}
            }
        }
        tally
    }

    #[test]
    fn a_vote_is_decided_as_soon_as_no_answer_can_change_it() {
        let verdicts = [
            ("...", None),
            ("g..", None),
            ("gg.", Some(Verdict::Granted)),
            ("g.s", None),
            ("b..", None),
            ("bb.", Some(Verdict::Contended)),
            ("ss.", Some(Verdict::NoQuorum)),
            ("gbs", Some(Verdict::Contended)),
            ("gss", Some(Verdict::NoQuorum)),
            ("bs.", None),
            ("bsg", Some(Verdict::Contended)),
            ("bss", Some(Verdict::NoQuorum)),
            ("ggb..", None),
            ("gg.bb", None),
            ("gbbb.", Some(Verdict::Contended)),
            ("ssb..", None),
            ("ssbg.", None),
            ("ssbgg", Some(Verdict::Contended)),
            ("sssgg", Some(Verdict::NoQuorum)),
            ("ssggg", Some(Verdict::Granted)),
        ];
        for (votes, verdict) in verdicts {
            assert_eq!(tally(votes).verdict(), verdict, "{votes}");
        }
    }

    #[test]
    fn no_lock_is_granted_by_fewer_than_a_majority_of_all_nodes() {
        for nodes in [3, 5, 7] {
            for granted in 0..=nodes {
                let votes = "g".repeat(granted) + &"s".repeat(nodes - granted);
                let won = tally(&votes).verdict() == Some(Verdict::Granted);
                assert_eq!(won, 2 * granted > nodes, "{votes}");
            }
        }
    }

    #[test]
    fn the_holder_is_the_one_at_the_most_nodes() {
        let mut tally = Tally::of(3);
        tally.add(0, contended("web-1", 3));
        tally.add(1, contended("web-2", 7));
        tally.add(2, contended("web-2", 8));
        let holder = other("web-2", 8);
        let known = Rival { holder, split: false, nobody: false };
        assert_eq!(tally.rival(), Some(known));
        let seen = |tally: &Tally| tally.rival().map(|it| (it.split, it.nobody));
        tally.add(2, failed());
        // One of the two may hold the lock at the third node.
        assert_eq!(seen(&tally), Some((true, false)));
        tally.add(2, granted());
        assert_eq!(seen(&tally), Some((true, true)));
    }

    #[test]
    fn a_further_answer_may_show_the_holder() {
        let is_split = |tally: &Tally| tally.rival().map(|it| it.split);
        let mut tally = Tally::of(3);
        tally.add(0, contended("web-1", 3));
        tally.add(1, contended("web-2", 7));
        assert_eq!((tally.verdict(), is_split(&tally)), (Some(Verdict::Contended), None));
        tally.add(2, contended("web-2", 7));
        assert_eq!(is_split(&tally), Some(false));
        tally.add(2, contended("web-3", 7));
        assert_eq!(is_split(&tally), Some(true));
        let mut tally = Tally::of(5);
        (0..3).for_each(|nth| tally.add(nth, contended("web-1", 3)));
        assert_eq!(is_split(&tally), Some(false));
    }

    #[test]
    fn two_tokens_of_one_process_are_two_holders() {
        let mut tally = Tally::of(3);
        for nth in 0..3 {
            tally.add(nth, held(other("web-1", 3), nth as u64));
        }
        assert!(tally.rival().is_some_and(|it| it.split));
    }

    #[test]
    fn the_error_has_the_reply_of_each_node() {
        let names = ["a:1", "b:2", "c:3"].map(str::to_owned);
        assert!(tally("gs.").fault(&names).is_none(), "an answer is missing");
        let (error, _) = tally("gss").fault(&names).unwrap();
        let LockError::Unavailable { nodes, .. } = &error else { panic!("{error}") };
        assert_eq!(
            nodes.iter().map(|reply| reply.error.is_some()).collect::<Vec<_>>(),
            [false, true, true]
        );
        let text = error.to_string();
        assert!(text.contains("a:1 answers") && text.contains("b:2: the lock server"), "{text}");
    }
}
