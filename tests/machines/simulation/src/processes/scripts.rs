//! Which scripts servers are sent, by what is written in each.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    Acquire,
    AcquireAll,
    Release,
    ReleaseMigrating,
    /// Each of several locks, by its own token.
    ReleaseUncontended,
    Renew,
    /// As `SET NX`, on one node of a Redlock.
    Repair,
}

/// What is written only in one of the scripts.
const BEGINNINGS: [(&str, Script); 7] = [
    ("-- Asks for a lock: ", Script::Acquire),
    ("-- Asks for several locks: ", Script::AcquireAll),
    ("-- Releases a lock if ", Script::Release),
    ("-- Releases a lock without ", Script::ReleaseMigrating),
    ("-- Releases locks, ", Script::ReleaseUncontended),
    ("-- Renews a lock if ", Script::Renew),
    ("-- Gives a lock over several nodes back ", Script::Repair),
];

impl Script {
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        BEGINNINGS.iter().find(|(with, _)| text.contains(with)).map(|(_, script)| *script)
    }
}
