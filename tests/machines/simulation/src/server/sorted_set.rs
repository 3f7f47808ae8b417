//! A sorted set: members by score, and by name where scores are equal.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A score, which is never NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Score(pub(super) f64);

impl Eq for Score {}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One end of a range of scores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) score: f64,
    pub(super) exclusive: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SortedSet {
    scores: BTreeMap<Vec<u8>, Score>,
    order: BTreeSet<(Score, Vec<u8>)>,
}

impl SortedSet {
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).map(|score| score.0)
    }

    /// Sets a member's score; returns the score before.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        // A short set keeps no sign of zero.
        let score = if score == 0.0 { 0.0 } else { score };
        let before = self.scores.insert(member.to_vec(), Score(score));
        if let Some(before) = before {
            self.order.remove(&(before, member.to_vec()));
        }
        self.order.insert((Score(score), member.to_vec()));
        before.map(|score| score.0)
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(score) = self.scores.remove(member) else { return false };
        self.order.remove(&(score, member.to_vec()))
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = *self.scores.get(member)?;
        Some(self.order.range(..(score, member.to_vec())).count())
    }

    /// Members and their scores, in order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.order.iter().map(|(score, member)| (member.as_slice(), score.0))
    }

    /// Those at some ranks.
    pub(super) fn at(&self, ranks: Range<usize>) -> impl Iterator<Item = (&[u8], f64)> {
        self.iter().skip(ranks.start).take(ranks.len())
    }

    /// Those with a score in a range.
    pub(super) fn between(&self, low: Bound, high: Bound) -> impl Iterator<Item = (&[u8], f64)> {
        self.iter()
            .skip_while(move |(_, score)| {
                *score < low.score || low.exclusive && *score == low.score
            })
            .take_while(move |(_, score)| {
                *score < high.score || !high.exclusive && *score == high.score
            })
    }
}
