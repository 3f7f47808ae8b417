//! What the entries of a history say for certain: who was granted a lock, and who held it when.

use std::collections::HashMap;

use crate::entry::{Entry, Function, Kind};

/// A lock that was granted to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The lock.
    pub key: String,
    /// The process.
    pub process: String,
    /// The fence, if there is one.
    pub fence: Option<u64>,
    /// When the process asked.
    pub asked: u64,
    /// When the process knew of the grant.
    pub told: u64,
    /// The time in which the process held the lock for certain; `None` when its lease was over
    /// before it knew of the grant.
    pub holding: Option<Holding>,
}

/// A time in which a process held a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// From then on, in nanoseconds.
    pub from: u64,
    /// Until then. The largest number for a holder of whom no end is known.
    pub to: u64,
}

impl Holding {
    /// Whether two processes held the lock at once.
    pub fn overlaps(self, other: Holding) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// A grant of which the end may be unknown yet.
struct Open {
    grant: Grant,
    until: Option<u64>,
    over: Option<u64>,
    last_use: u64,
}

impl Open {
    fn closed(self) -> Grant {
        let Open { mut grant, until, over, last_use } = self;
        let end = until.unwrap_or(u64::MAX).min(over.unwrap_or(u64::MAX)).max(last_use);
        grant.holding = (end >= grant.told).then_some(Holding { from: grant.told, to: end });
        grant
    }
}

/// All grants of a history, in the order in which they are told. The error names an entry that has
/// no beginning.
pub fn grants(entries: &[Entry]) -> Result<Vec<Grant>, String> {
    let mut asked: HashMap<(&str, &str), u64> = HashMap::new();
    let mut open: Vec<Open> = Vec::new();
    // The last grant to a process of a key.
    let mut latest: HashMap<(&str, &str), usize> = HashMap::new();
    for entry in entries {
        let who = (entry.process.as_str(), entry.key.as_str());
        let time = entry.time;
        match (&entry.function, entry.kind) {
            (Function::Acquire, Kind::Invoke) => {
                asked.insert(who, time);
            }
            (Function::Acquire, Kind::Fail | Kind::Info) => {
                asked.remove(&who);
            }
            (Function::Acquire, Kind::Ok) => {
                let asked = asked.remove(&who).ok_or_else(|| {
                    format!("{} has acquired {:?} at {time} and never asked", who.0, who.1)
                })?;
                latest.insert(who, open.len());
                let (process, key) = (entry.process.clone(), entry.key.clone());
                let fence = entry.fence;
                let grant = Grant { key, process, fence, asked, told: time, holding: None };
                open.push(Open { grant, until: entry.until, over: None, last_use: 0 });
            }
            (Function::Use, Kind::Ok) => {
                let used = latest.get(&who).ok_or_else(|| {
                    format!("{} works under {:?} at {time} and never held it", who.0, who.1)
                })?;
                open[*used].last_use = time;
            }
            (Function::Release, Kind::Invoke | Kind::Info) => {
                if let Some(released) = latest.get(&who) {
                    open[*released].over.get_or_insert(time);
                }
            }
            (Function::Kill, _) => {
                let path = format!("{}/", entry.process);
                let dies = |process: &str| process == entry.process || process.starts_with(&path);
                for (_, dead) in latest.iter().filter(|((process, _), _)| dies(process)) {
                    open[*dead].over.get_or_insert(time);
                }
                asked.retain(|(process, _), _| !dies(process));
            }
            _ => {}
        }
    }
    Ok(open.into_iter().map(Open::closed).collect())
}
