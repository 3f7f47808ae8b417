//! What a history proves against a lock.

use std::fmt;
use std::time::Duration;

use crate::holding::Grant;

/// The finding of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Number of its entries.
    pub entries: usize,
    /// Number of its keys.
    pub keys: usize,
    /// Number of grants.
    pub grants: usize,
    /// What must not be, in the order of time. Empty when the lock has kept its promise.
    pub contradictions: Vec<Contradiction>,
}

/// Two grants that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// What must not be.
    pub rule: Rule,
    /// The grant that was told first.
    pub first: Grant,
    /// The other one.
    pub second: Grant,
}

/// What must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Two hold a lock at once.
    Overlap,
    /// Two have the same fence.
    SameFence,
    /// The later one has the smaller fence.
    FenceFell,
}

impl Verdict {
    /// Whether the history contradicts nothing.
    pub fn is_valid(&self) -> bool {
        self.contradictions.is_empty()
    }

    /// Number of contradictions of this rule.
    pub fn count(&self, rule: Rule) -> usize {
        self.contradictions.iter().filter(|found| found.rule == rule).count()
    }
}

impl Contradiction {
    pub(crate) fn new(rule: Rule, first: &Grant, second: &Grant) -> Contradiction {
        Contradiction { rule, first: first.clone(), second: second.clone() }
    }

    /// How long both held the lock.
    fn length(&self) -> Option<Duration> {
        let (first, second) = (self.first.holding?, self.second.holding?);
        let length = first.to.min(second.to).saturating_sub(first.from.max(second.from));
        (first.to.min(second.to) < u64::MAX).then_some(Duration::from_nanos(length))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        let Verdict { entries, keys, grants, contradictions } = self;
        let verdict = if self.is_valid() { "valid" } else { "INVALID" };
        write!(f, "{verdict}: {entries} entries, {keys} keys, {grants} grants")?;
        if self.is_valid() {
            return writeln!(f);
        }
        writeln!(
            f,
            ", {} overlaps, {} fences twice, {} fences that fell",
            self.count(Rule::Overlap),
            self.count(Rule::SameFence),
            self.count(Rule::FenceFell)
        )?;
        for contradiction in contradictions.iter().take(SHOWN) {
            writeln!(f, "{contradiction}")?;
        }
        match contradictions.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.first.key;
        match (self.rule, self.length()) {
            (Rule::Overlap, Some(length)) => write!(f, "{key:?} is held twice for {length:?}:")?,
            (Rule::Overlap, None) => write!(f, "{key:?} is held twice:")?,
            (Rule::SameFence, _) => write!(f, "{key:?} has given a fence twice:")?,
            (Rule::FenceFell, _) => write!(f, "{key:?} has given a smaller fence later:")?,
        }
        write!(f, "\n    {}\n    {}", Shown(&self.first), Shown(&self.second))
    }
}

/// A grant in a line, its times in milliseconds.
struct Shown<'a>(&'a Grant);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: u64| time as f64 / 1e6;
        let Grant { process, fence, asked, told, holding, .. } = self.0;
        write!(f, "{process}: asked at {:.3} ms, granted at {:.3} ms", ms(*asked), ms(*told))?;
        if let Some(fence) = fence {
            write!(f, " with fence {fence}")?;
        }
        match holding {
            Some(holding) if holding.to < u64::MAX => {
                write!(f, ", held until {:.3} ms", ms(holding.to))
            }
            Some(_) => f.write_str(", never released"),
            None => f.write_str(", its lease had ended by then"),
        }
    }
}
