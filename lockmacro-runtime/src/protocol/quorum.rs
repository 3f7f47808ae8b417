//! Counting what the nodes said, and what follows from it. No I/O.

use crate::Unavailability;
use std::time::Duration;

use crate::protocol::vote::{NodeError, Vote};
use crate::value::error::{LockError, NodeReply};
use crate::value::fence::Fence;

/// What the nodes said so far, in their order; `None` where nothing was heard yet.
#[derive(Debug)]
pub(crate) struct Tally {
    said: Box<[Option<Result<Vote, NodeError>>]>,
}

/// What comes of a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority of all nodes has granted the lock.
    Granted,
    /// A majority has answered, and the lock cannot be had because of what others hold.
    Busy,
    /// Fewer nodes have answered than a majority.
    NoQuorum,
}

/// Who is in the way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: Option<String>,
    pub(crate) left: Option<Duration>,
    /// It is not known to hold a majority: others may have asked at the same moment.
    pub(crate) split: bool,
    /// Nor can it hold one, whatever those nodes have that said nothing. So nobody has the lock.
    pub(crate) nobody: bool,
}

/// What a node holds: a hash of it, whose it is, and for how much longer.
type Held<'a> = (u64, &'a Option<String>, Option<Duration>);

/// How many nodes hold the same.
fn count(held: &[Held<'_>], value: u64) -> usize {
    held.iter().filter(|(other, ..)| *other == value).count()
}

pub(crate) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Whether there is a majority without those that are out for good.
pub(crate) fn may_be_had(out: usize, nodes: usize) -> bool {
    out + majority(nodes) <= nodes
}

impl Tally {
    pub(crate) fn of(nodes: usize) -> Self {
        Self { said: (0..nodes).map(|_| None).collect() }
    }

    pub(crate) fn add(&mut self, nth: usize, said: Result<Vote, NodeError>) {
        if let Some(place) = self.said.get_mut(nth) {
            *place = Some(said);
        }
    }

    /// Counts who has said nothing yet as silent.
    pub(crate) fn end(&mut self) {
        for said in self.said.iter_mut().filter(|said| said.is_none()) {
            let error = Box::new(late("asked"));
            *said = Some(Err(NodeError { error, unknown: true, transient: true }));
        }
    }

    /// The verdict, as soon as no further answer can change it.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        let (mut granted, mut busy, mut silent, mut open) = (0, 0, 0, 0);
        for said in &self.said {
            match said {
                None => open += 1,
                Some(Ok(Vote::Granted(_))) => granted += 1,
                Some(Ok(Vote::Busy { .. })) => busy += 1,
                Some(Err(_)) => silent += 1,
            }
        }
        let majority = majority(self.said.len());
        if granted >= majority {
            Some(Verdict::Granted)
        } else if granted + open >= majority {
            None
        } else if granted + busy >= majority {
            Some(Verdict::Busy)
        } else if silent + majority > self.said.len() {
            Some(Verdict::NoQuorum)
        } else {
            None
        }
    }

    /// Which nodes have granted the lock, and the largest fence that they gave.
    pub(crate) fn won(&self) -> (Vec<usize>, Option<Fence>) {
        let mut won = (Vec::new(), None);
        for (nth, said) in self.said.iter().enumerate() {
            if let Some(Ok(Vote::Granted(fences))) = said {
                won.0.push(nth);
                won.1 = won.1.max(fences.iter().max());
            }
        }
        won
    }

    /// Of those who hold the key somewhere, the one that does so at the most nodes.
    pub(crate) fn holder(&self) -> Holder {
        let held = self.held();
        let Some((value, owner, _)) = held.iter().max_by_key(|(value, ..)| count(&held, *value))
        else {
            return Holder::default();
        };
        let mut left = Some(Duration::ZERO);
        for (.., theirs) in held.iter().filter(|(other, ..)| other == value) {
            left = left.zip(*theirs).map(|(left, theirs)| left.max(theirs));
        }
        let (known, majority) = (count(&held, *value), majority(self.said.len()));
        let unheard = self.said.iter().filter(|said| !matches!(said, Some(Ok(_)))).count();
        let (split, nobody) = (known < majority, known + unheard < majority);
        Holder { owner: (*owner).clone(), left, split, nobody }
    }

    /// Whether no further answer can tell that somebody holds a majority, or one has.
    pub(crate) fn tells_holder(&self) -> bool {
        let held = self.held();
        let most = held.iter().map(|(value, ..)| count(&held, *value)).max().unwrap_or(0);
        let open = self.said.iter().filter(|said| said.is_none()).count();
        most >= majority(self.said.len()) || most + open < majority(self.said.len())
    }

    /// What the nodes hold that others have.
    fn held(&self) -> Vec<Held<'_>> {
        let busy = |said| match said {
            &Some(Ok(Vote::Busy { ref owner, held, left })) => Some((held, owner, left)),
            _ => None,
        };
        self.said.iter().filter_map(busy).collect()
    }

    /// Whether a majority may be reached when the nodes are asked again.
    pub(crate) fn is_transient(&self) -> bool {
        let lasting =
            |said: &&Option<_>| matches!(said, Some(Err(NodeError { transient: false, .. })));
        may_be_had(self.said.iter().filter(lasting).count(), self.said.len())
    }

    /// What is wrong, node by node; or what is wrong with the key, when a majority says so.
    pub(crate) fn error(&self, names: &[String]) -> LockError {
        let wrong_key = |said: &Option<_>| match said {
            Some(Err(NodeError { error, .. })) => {
                matches!(**error, LockError::KeyNotALock { .. }).then(|| (**error).clone())
            }
            _ => None,
        };
        let mut wrong_keys = self.said.iter().filter_map(wrong_key);
        if let Some(error) = wrong_keys.nth(majority(self.said.len()) - 1) {
            return error;
        }
        let errors = self.said.iter().map(|said| match said {
            Some(Err(NodeError { error, .. })) => Some((**error).clone()),
            _ => None,
        });
        no_quorum(names, errors)
    }
}

/// The error that tells which nodes have said what; `None` of a node that has answered.
pub(crate) fn no_quorum(
    names: &[String],
    errors: impl Iterator<Item = Option<LockError>>,
) -> LockError {
    let reply = |(node, error): (&String, _)| NodeReply { node: node.clone(), error };
    LockError::NoQuorum { nodes: names.iter().zip(errors).map(reply).collect() }
}

/// What is told of a node that did not answer in time.
pub(crate) fn late(what: &str) -> LockError {
    LockError::Unavailable { reason: Unavailability::Timeout, detail: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::fence::Fences;
    use crate::value::unavailability::Unavailability;

    fn granted() -> Result<Vote, NodeError> {
        Ok(Vote::Granted(Fences::default()))
    }

    fn busy(owner: &str, seconds: u64) -> Result<Vote, NodeError> {
        let left = Some(Duration::from_secs(seconds));
        let held = crate::value::token::hash_of(owner.as_bytes());
        Ok(Vote::Busy { owner: Some(owner.to_owned()), held, left })
    }

    fn silent() -> Result<Vote, NodeError> {
        let (reason, detail) = (Unavailability::Timeout, String::new());
        let error = Box::new(LockError::Unavailable { reason, detail });
        Err(NodeError { error, unknown: true, transient: true })
    }

    /// `g` granted, `b` busy, `s` silent, `.` not heard of.
    fn tally(said: &str) -> Tally {
        let mut tally = Tally::of(said.len());
        for (nth, said) in said.chars().enumerate() {
            match said {
                'g' => tally.add(nth, granted()),
                'b' => tally.add(nth, busy("web", 9)),
                's' => tally.add(nth, silent()),
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
            ("bb.", Some(Verdict::Busy)),
            ("ss.", Some(Verdict::NoQuorum)),
            ("gbs", Some(Verdict::Busy)),
            ("gss", Some(Verdict::NoQuorum)),
            ("bs.", None),
            ("bsg", Some(Verdict::Busy)),
            ("bss", Some(Verdict::NoQuorum)),
            ("ggb..", None),
            ("gg.bb", None),
            ("gbbb.", Some(Verdict::Busy)),
            ("ssb..", None),
            ("ssbg.", None),
            ("ssbgg", Some(Verdict::Busy)),
            ("sssgg", Some(Verdict::NoQuorum)),
            ("ssggg", Some(Verdict::Granted)),
        ];
        for (said, verdict) in verdicts {
            assert_eq!(tally(said).verdict(), verdict, "{said}");
        }
    }

    #[test]
    fn no_lock_is_granted_by_fewer_than_a_majority_of_all_nodes() {
        for nodes in [3, 5, 7] {
            for granted in 0..=nodes {
                let said = "g".repeat(granted) + &"s".repeat(nodes - granted);
                let won = tally(&said).verdict() == Some(Verdict::Granted);
                assert_eq!(won, 2 * granted > nodes, "{said}");
            }
        }
    }

    #[test]
    fn the_holder_is_who_has_most_nodes() {
        let mut tally = Tally::of(3);
        tally.add(0, busy("web-1", 3));
        tally.add(1, busy("web-2", 7));
        tally.add(2, busy("web-2", 8));
        let (owner, left) = (Some("web-2".to_owned()), Some(Duration::from_secs(8)));
        assert_eq!(tally.holder(), Holder { owner, left, split: false, nobody: false });
        tally.add(2, silent());
        // One of the two may have it at the third.
        assert!(tally.holder().split && !tally.holder().nobody);
        tally.add(2, granted());
        assert!(tally.holder().split && tally.holder().nobody);
    }

    #[test]
    fn who_has_not_answered_may_tell_that_somebody_is_the_holder() {
        let mut tally = Tally::of(3);
        tally.add(0, busy("web-1", 3));
        tally.add(1, busy("web-2", 7));
        assert!(tally.verdict() == Some(Verdict::Busy) && !tally.tells_holder());
        tally.add(2, busy("web-2", 7));
        assert!(tally.tells_holder() && !tally.holder().split);
        tally.add(2, busy("web-3", 7));
        assert!(tally.tells_holder() && tally.holder().split);
        let mut tally = Tally::of(5);
        (0..3).for_each(|nth| tally.add(nth, busy("web-1", 3)));
        assert!(tally.tells_holder());
    }

    #[test]
    fn two_holders_of_one_process_are_two() {
        let mut tally = Tally::of(3);
        for held in 0..3 {
            let (owner, left) = (Some("web-1".to_owned()), Some(Duration::from_secs(3)));
            tally.add(held, Ok(Vote::Busy { owner, held: held as u64, left }));
        }
        assert!(tally.holder().split);
    }

    #[test]
    fn the_error_tells_which_nodes_said_what() {
        let names = ["a:1", "b:2", "c:3"].map(str::to_owned);
        let error = tally("gss").error(&names);
        let LockError::NoQuorum { nodes, .. } = &error else { panic!("{error}") };
        assert_eq!(
            nodes.iter().map(|reply| reply.error.is_some()).collect::<Vec<_>>(),
            [false, true, true]
        );
        let text = error.to_string();
        assert!(text.contains("a:1 answers") && text.contains("b:2: the lock server"), "{text}");
    }
}
