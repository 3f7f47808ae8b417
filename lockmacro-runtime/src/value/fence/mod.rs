//! Fences: numbers by which a resource refuses a holder that has lost the lock without knowing it.
//!
//! A lock cannot stop a holder that is paused, in a debugger or a swapped-out process, and
//! continues after its lease. Neither can it stop a request in flight. A resource can: it keeps the
//! largest fence it has seen, and refuses a write with a smaller one. See Martin Kleppmann, "How to
//! do distributed locking" (2016).
//!
//! In SQL the check is a condition of the write, and the caller checks the number of rows:
//!
//! ```sql
//! UPDATE stock SET amount = :amount, fence = :fence WHERE id = :id AND fence <= :fence
//! ```
//!
//! In Redis it is a script, [`WRITE`]. For locks in the PostgreSQL database that is written to, the
//! guard gives a stronger check: see [`FenceCheck`]. That database can also keep the fences of
//! locks in another store, by `CALL lm1.record_fence($1, $2)` in the transaction that writes, which
//! fails where a larger fence of the key was recorded.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Writes a value that a lock protects into a Redis hash, unless the hash has a larger fence.
///
/// A Lua script for `EVAL`. Its key is the hash, with the fields `value` and `fence`. Its two
/// arguments are the fence and the value. It returns 1 when it has written, and 0 when a larger
/// fence was there. It fails, and writes nothing, where the argument or the field is no whole
/// number from 0 to 2^53. The server need not be the one with the locks.
pub const WRITE: &str = include_str!("write.lua");

/// The number of a grant, larger than the number of every earlier grant of the same key. See the
/// [module](self).
///
/// ```
/// use lockmacro_runtime::fence::Fence;
///
/// fn write(largest: &mut Option<Fence>, fence: Fence) -> Result<(), &'static str> {
///     if largest.is_some_and(|largest| fence < largest) {
///         return Err("somebody else holds the lock by now");
///     }
///     *largest = Some(fence);
///     Ok(())
/// }
/// # let _ = write;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "u64", try_from = "u64"))]
pub struct Fence(u64);

/// The SQLSTATE of the error by which a PostgreSQL database refuses a late writer, from a
/// [`FenceCheck`] and from the procedure `record_fence`.
///
/// The transaction is aborted, and nothing in it was written. Acquire the lock again before you
/// repeat it, because the same fence is late for ever.
///
/// ```
/// use lockmacro_runtime::fence::LATE_SQLSTATE;
///
/// /// With the code of an error, as drivers return it.
/// fn is_late(sqlstate: Option<&str>) -> bool {
///     sqlstate == Some(LATE_SQLSTATE)
/// }
/// # assert!(is_late(Some("LM003")) && !is_late(None));
/// ```
pub const LATE_SQLSTATE: &str = "LM003";

/// The check of a fence in a transaction of the PostgreSQL database that has the lock: a statement
/// and its two parameters, from [`LockGuard::fence_check`](crate::LockGuard::fence_check).
///
/// Run it as the first statement of the transaction that writes. It returns nothing: if a later
/// holder has been granted the key, or has checked its fence, it fails with [`LATE_SQLSTATE`] and
/// aborts the transaction. Until the transaction ends, nobody else is granted the key. So others
/// write after its commit, also where the lock ends before it. A lock whose check was taken is not
/// passed on inside its process, so that every later holder has a grant of its own.
///
/// Where the check would protect nothing, it fails with the SQLSTATE `LM002`, and the message says
/// why:
///
/// - outside of a transaction, in a function that calls it, and in a savepoint, whose rollback would
///   take the check back;
/// - for a key that was never granted in its schema, a fence larger than the last one of the key,
///   and `NULL`.
///
/// Behind another statement in one string or pipeline without `BEGIN`, it may not see that its
/// transaction ends before the writes. See
/// [the guide](crate::guide::fences#what-the-check-cannot-do) for what else the check cannot do.
///
/// ```
/// use lockmacro_runtime::{LockError, LockGuard};
///
/// fn print_check(lock: &LockGuard) -> Result<(), LockError> {
///     let check = lock.fence_check()?;
///     println!("{} with {} and {}", check.sql(), check.key(), check.fence());
///     Ok(())
/// }
/// # let _ = print_check;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "nothing is checked until the database runs the statement"]
pub struct FenceCheck {
    pub(crate) sql: String,
    pub(crate) key: String,
    pub(crate) fence: Fence,
}

impl FenceCheck {
    /// Returns the statement for the schema of the lock, as in `CALL lm1.check_fence($1, $2)`.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns the first parameter, a `text`: the whole key as it is in the database.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the second parameter, a `bigint`: the fence, as drivers take it.
    pub fn fence(&self) -> i64 {
        self.fence.into()
    }
}

/// Default time for which a key's last fence is kept.
pub(crate) const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Shortest time for which a fence is kept. After a server's clock was set back by less than this,
/// fences still grow.
pub(crate) const RETENTION_MIN: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest time for which a fence is kept: ten years, which a server can count.
pub(crate) const RETENTION_MAX: Duration = Duration::from_secs(3_650 * 24 * 60 * 60);

/// The largest fence, as columns of databases are signed.
const MAX: u64 = i64::MAX.cast_unsigned();

/// The largest fence of our own counters. Scripts count in doubles, which are exact up to here. In
/// microseconds since 1970 it is the year 2255. A [store of one's own](crate::store) may have larger
/// ones.
pub(crate) const COUNTER_MAX: u64 = 1 << 53;

/// The error of a number that is too large for a fence: fences end at 2^63 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a fence: it is larger than 2^63 - 1")]
pub struct NotAFence(u64);

impl TryFrom<u64> for Fence {
    type Error = NotAFence;

    /// Converts a number that a resource has stored.
    fn try_from(number: u64) -> Result<Self, NotAFence> {
        if number <= MAX { Ok(Self(number)) } else { Err(NotAFence(number)) }
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> Self {
        fence.0
    }
}

impl From<Fence> for i64 {
    fn from(fence: Fence) -> Self {
        // At most 2^63 - 1.
        fence.0.cast_signed()
    }
}

/// The numbers that a grant has brought for one key: for the holders of one turn, in order.
///
/// They lie below the clock, so that the counter of a hot key does not outrun the clock, by which
/// the order goes on when a server has forgotten the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FenceBlock {
    first: Fence,
    last: Fence,
}

impl FenceBlock {
    /// Most numbers in a block.
    pub(crate) const LONGEST: u64 = 256;

    /// The numbers from `first` to `last`, at least `last`.
    pub(crate) fn new(first: Fence, last: Fence) -> Self {
        Self { first: first.min(last), last }
    }

    /// The next numbers after `before` up to `last`; one if there was none before.
    pub(crate) fn after(before: Option<u64>, last: Fence) -> Self {
        let first = before.map_or(last.0, |before| {
            before.saturating_add(1).max(last.0.saturating_sub(Self::LONGEST - 1))
        });
        Self::new(Fence(first), last)
    }

    pub(crate) fn first(self) -> Fence {
        self.first
    }

    pub(crate) fn last(self) -> Fence {
        self.last
    }

    /// The numbers that are new at both of two servers, of which each has issued one block.
    pub(crate) fn new_at_both(self, other: Self) -> Self {
        Self::new(self.first.max(other.first), self.last.max(other.last))
    }

    /// The numbers after the first.
    pub(crate) fn rest(self) -> Option<Self> {
        let first = Fence(self.first.0 + 1);
        (first <= self.last).then_some(Self { first, ..self })
    }
}

impl FromStr for FenceBlock {
    type Err = ();

    /// Reads `last` or `first-last`, as the scripts write it.
    fn from_str(block: &str) -> Result<Self, ()> {
        let read = |number: &str| {
            let number = number.parse::<u64>().ok().filter(|number| *number <= COUNTER_MAX)?;
            Fence::try_from(number).ok()
        };
        let (first, last) = block.split_once('-').unwrap_or((block, block));
        match (read(first), read(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    #[test]
    fn a_fence_prints_orders_and_becomes_a_number() {
        let early = Fence::try_from(9).unwrap();
        let late = Fence::try_from(10).unwrap();
        assert!(early < late);
        assert_eq!((late.to_string(), u64::from(late), i64::from(late)), ("10".into(), 10, 10));
        assert_eq!(i64::from(Fence::try_from(MAX).unwrap()), i64::MAX);
        assert_eq!(Fence::try_from(MAX + 1), Err(NotAFence(MAX + 1)));
    }

    #[test]
    fn a_block_is_read_and_its_numbers_are_taken_in_order() {
        let block = |text: &str| text.parse::<FenceBlock>();
        let three = block("7-9").unwrap();
        let numbers = iter::successors(Some(three), |block| block.rest()).map(FenceBlock::first);
        assert_eq!(numbers.map(u64::from).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!(block("7").unwrap().rest(), None);
        for wrong in ["", "-", "7-", "-7", "9-7", "7-8-9", "x", "9007199254740993"] {
            assert_eq!(block(wrong), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_block_lies_below_its_last_number_and_after_all_before() {
        let after = |before, last| {
            let block = FenceBlock::after(before, Fence(last));
            (u64::from(block.first()), u64::from(block.last()))
        };
        assert_eq!(after(None, 1_000), (1_000, 1_000));
        assert_eq!(after(Some(999), 1_000), (1_000, 1_000));
        assert_eq!(after(Some(900), 1_000), (901, 1_000));
        assert_eq!(after(Some(7), 1_000), (745, 1_000));
    }

    #[test]
    fn numbers_are_new_at_two_servers_after_both_and_up_to_the_larger_end() {
        let block = |text: &str| text.parse::<FenceBlock>().unwrap();
        for (one, other, both) in
            [("10-20", "15-18", "15-20"), ("10-20", "21-30", "21-30"), ("7", "3-5", "7")]
        {
            assert_eq!(block(one).new_at_both(block(other)), block(both));
            assert_eq!(block(other).new_at_both(block(one)), block(both));
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_fence_is_stored_as_its_number_and_checked_when_it_is_read() {
        use serde::Deserialize as _;
        use serde::de::IntoDeserializer as _;
        use serde::de::value::{Error, U64Deserializer};

        let number: U64Deserializer<Error> = 10_u64.into_deserializer();
        assert_eq!(Fence::deserialize(number).unwrap(), Fence(10));
        let number: U64Deserializer<Error> = (MAX + 1).into_deserializer();
        assert!(Fence::deserialize(number).unwrap_err().to_string().contains("2^63"));
    }
}
