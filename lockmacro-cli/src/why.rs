//! The command `why`: a paragraph about a key, for somebody who is called because it is stuck.

use std::time::{Duration, SystemTime};

use lockmacro_runtime::LockManager;
use lockmacro_runtime::inspect::{HeldLock, QueuedWaiter};
use serde_json::json;

use crate::locks::as_json;
use crate::show::{document, millis, plain, shell, time};
use crate::{Failure, Report};

/// Most places in the queue that are counted.
const COUNTED: usize = 1_000;
/// A lock is stuck that is held for this many times its usual time, and at least this long.
const TIMES: u32 = 10;
const LONG: Duration = Duration::from_secs(10);
/// The same of a lock whose usual time nobody knows.
const LONG_UNKNOWN: Duration = Duration::from_secs(60);

/// A key, as far as it is known.
struct Seen<'a> {
    key: &'a str,
    lock: Option<&'a HeldLock>,
    queue: &'a [QueuedWaiter],
    now: SystemTime,
}

pub async fn explain(manager: &LockManager, key: &str, json: bool) -> Result<Report, Failure> {
    let lock = manager.inspect_lock(key).await?;
    let queue = manager.inspect_waiters(key, COUNTED).await?.items;
    let seen = Seen { key, lock: lock.as_ref(), queue: &queue, now: SystemTime::now() };
    let text = seen.sentences().join(" ");
    let text = match json {
        true => document(&json!({
            "key": key,
            "text": text,
            "lock": lock.as_ref().map(as_json),
            "held_ms": millis(seen.held()),
            "asked_ms": millis(seen.asked()),
            "usual_hold_ms": millis(seen.usual()),
            "is_stuck": seen.is_stuck(),
            "processes": queue.len(),
            "callers": seen.callers(),
            "first_waits_ms": millis(queue.first().and_then(|first| seen.since(first.asked))),
        })),
        false => text + "\n",
    };
    Ok(Report { text, done: true })
}

impl Seen<'_> {
    fn sentences(&self) -> Vec<String> {
        let Some(lock) = self.lock else {
            let next = match self.queue {
                [] => {
                    "A caller that is refused all the same uses another key, key_prefix, server or \
                     database: compare it with `lockmacro locks`."
                }
                _ => {
                    "The first one has it within some seconds. If this stays so, see what \
                     `lockmacro doctor` says."
                }
            };
            let free = format!("Nothing holds `{}`.", plain(self.key));
            return vec![free, self.waiters(), next.to_owned()];
        };
        let parts = [Some(self.holder(lock)), self.compared(), Some(self.waiters())];
        parts.into_iter().flatten().chain([self.advice(lock)]).collect()
    }

    /// How long ago it was, by the clock of another machine.
    fn since(&self, at: Option<SystemTime>) -> Option<Duration> {
        Some(self.now.duration_since(at?).unwrap_or_default())
    }

    /// How long the lock is held, where that is known: not of a holder that could wait for it.
    fn held(&self) -> Option<Duration> {
        self.since(self.lock?.holder.since)
    }

    /// How long ago the holder asked for the lock.
    fn asked(&self) -> Option<Duration> {
        self.since(self.lock?.holder.asked)
    }

    fn usual(&self) -> Option<Duration> {
        self.queue.iter().filter_map(|waiter| waiter.usual_hold).max()
    }

    /// How long a lock may be held before it is taken to be stuck.
    fn long(&self) -> Duration {
        self.usual().map_or(LONG_UNKNOWN, |usual| LONG.max(usual * TIMES))
    }

    /// `None` where it is not known how long the lock is held.
    fn is_stuck(&self) -> Option<bool> {
        match (self.held(), self.asked()) {
            (Some(held), _) => Some(held >= self.long()),
            (None, Some(asked)) if asked < self.long() => Some(false),
            _ => None,
        }
    }

    fn callers(&self) -> usize {
        self.queue.iter().map(|waiter| waiter.callers.unwrap_or(1)).sum()
    }

    fn holder(&self, lock: &HeldLock) -> String {
        let (key, last) = (plain(self.key), plain(&lock.holder.to_string()));
        let owner = match lock.sharing {
            None => last,
            Some(1) => format!("one shared holder. The last one that came is {last}"),
            Some(holders) => format!("{holders} shared holders. The last one that came is {last}"),
        };
        let held = match (self.held(), self.asked()) {
            (None, None) => String::new(),
            (None, asked) => format!(", which asked for it {} ago", time(asked)),
            (held, _) => format!(" for {}", time(held)),
        };
        let ends = match lock.holder.free_within {
            None => "It has no lease, and stays until its key is deleted.".to_owned(),
            left => format!("Its lease ends in {}, unless it is renewed.", time(left)),
        };
        format!("`{key}` is held by {owner}{held}. {ends}")
    }

    fn compared(&self) -> Option<String> {
        let usual = self.usual()?;
        let times = self.held().unwrap_or_default().as_secs_f64() / usual.as_secs_f64().max(0.001);
        let than = match times {
            2.0.. => format!(", and now {times:.0} times as long"),
            _ => String::new(),
        };
        Some(format!("It is usually held for {}{than}.", time(Some(usual))))
    }

    fn waiters(&self) -> String {
        let Some(first) = self.queue.first() else {
            return "Nobody waits in other processes.".to_owned();
        };
        let owner = plain(first.owner.as_deref().unwrap_or("another program"));
        let waits = self.since(first.asked).map(|waits| format!(" for {}", time(Some(waits))));
        let waits = waits.unwrap_or_default();
        match (self.callers(), self.queue.len()) {
            (1, _) => format!("One caller waits, {owner}{waits}."),
            (callers, 1) => format!("{callers} callers of {owner} wait, the first one{waits}."),
            (callers, processes) => format!(
                "{callers} callers wait in {processes} places, and first among them {owner}{waits}."
            ),
        }
    }

    fn advice(&self, lock: &HeldLock) -> String {
        let Some(owner) = &lock.holder.owner else {
            let key = plain(self.key);
            return format!("It was not locked by lockmacro: find out who writes the key `{key}`.");
        };
        let first = match (self.is_stuck(), self.queue) {
            (Some(false), []) => return "There is nothing to do.".to_owned(),
            (Some(false), _) => {
                return "It is only busy: if that is too slow, hold it for a shorter time, or lock \
                        smaller keys."
                    .to_owned();
            }
            (Some(true), _) => "L".to_owned(),
            (None, _) => {
                let long = time(Some(self.long()));
                format!("It may have waited itself: ask again. If it has the lock for {long}, l")
            }
        };
        let release = match plain(self.key) == self.key {
            true => format!("lockmacro release --force -- {}", shell(self.key)),
            false => "lockmacro release --force -- KEY".to_owned(),
        };
        if lock.sharing.is_some() {
            return format!(
                "{first}ook at the holders. `{release}` takes the lock away from all of them: only \
                 if they are dead."
            );
        }
        let mut parts = owner.split(':');
        let process = match (parts.next(), parts.next()) {
            (Some(host), Some(id)) if id.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("process {id} on {host}")
            }
            _ => owner.clone(),
        };
        format!(
            "{first}ook at {}. If it hangs, end it, and the lock is free when the lease ends. If it \
             is dead, do not wait: `{release}`.",
            plain(&process)
        )
    }
}

#[cfg(test)]
mod tests {
    use lockmacro_runtime::Holder;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn ago(seconds: u64) -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + NOW - Duration::from_secs(seconds))
    }

    fn told(lock: Option<&HeldLock>, queue: &[QueuedWaiter]) -> String {
        let now = SystemTime::UNIX_EPOCH + NOW;
        Seen { key: "order:42", lock, queue, now }.sentences().join(" ")
    }

    fn held(seconds: u64) -> HeldLock {
        let mut lock = HeldLock::new("order:42");
        lock.holder = Holder::new("web-3:4711:audit");
        (lock.holder.asked, lock.holder.since) = (ago(seconds), ago(seconds));
        lock.holder.free_within = Some(Duration::from_secs(12));
        lock
    }

    fn waiter(usual: Option<u64>, callers: usize) -> QueuedWaiter {
        let mut waiter = QueuedWaiter::new("web-4:12:audit");
        (waiter.asked, waiter.callers) = (ago(64), Some(callers));
        waiter.usual_hold = usual.map(Duration::from_millis);
        waiter
    }

    #[test]
    fn a_stuck_holder_is_named_with_what_to_do() {
        assert_eq!(
            told(Some(&held(840)), &[waiter(Some(300), 2), waiter(None, 1)]),
            "`order:42` is held by web-3:4711:audit for 14 min 0 s. Its lease ends in 12.0 s, unless \
             it is renewed. It is usually held for 0.3 s, and now 2800 times as long. 3 callers wait \
             in 2 places, and first among them web-4:12:audit for 1 min 4 s. Look at process 4711 on \
             web-3. If it hangs, end it, and the lock is free when the lease ends. If it is dead, do \
             not wait: `lockmacro release --force -- order:42`."
        );
    }

    #[test]
    fn a_busy_key_is_not_called_stuck() {
        let text = told(Some(&held(2)), &[waiter(Some(1_900), 1)]);
        assert!(text.contains("It is usually held for 1.9 s. One caller waits"), "{text}");
        assert!(text.contains("It is only busy") && !text.contains("--force"), "{text}");
        // Nobody knows what is usual.
        assert!(told(Some(&held(59)), &[waiter(None, 1)]).contains("It is only busy"));
        assert!(told(Some(&held(61)), &[waiter(None, 1)]).contains("--force"));
    }

    /// It may have waited for nearly all of the time.
    #[test]
    fn a_holder_that_could_wait_is_not_called_stuck_by_the_time_since_it_asked() {
        let mut lock = held(840);
        lock.holder.since = None;
        let text = told(Some(&lock), &[waiter(Some(300), 1)]);
        assert!(text.contains("audit, which asked for it 14 min 0 s ago."), "{text}");
        assert!(text.contains("usually held for 0.3 s. One caller"), "{text}");
        assert!(
            text.contains("ask again. If it has the lock for 10.0 s, look at process"),
            "{text}"
        );
        lock.holder.asked = ago(9);
        assert!(told(Some(&lock), &[waiter(Some(300), 1)]).contains("It is only busy"));
    }

    #[test]
    fn no_process_is_named_as_the_one_that_shares_a_lock() {
        let mut lock = held(840);
        lock.sharing = Some(2);
        let text = told(Some(&lock), &[]);
        let begins = "`order:42` is held by 2 shared holders. The last one that came is web-3";
        assert!(text.starts_with(begins) && text.contains("from all of them"), "{text}");
        assert!(!text.contains("process 4711"), "{text}");
    }

    #[test]
    fn a_key_of_others_is_one_word_of_the_command() {
        let (lock, now) = (held(840), SystemTime::UNIX_EPOCH + NOW);
        for (key, word) in
            [("a'; reboot; '", r"'a'\''; reboot; '\'''"), ("a\nb", "KEY"), ("-x", "-x")]
        {
            let seen = Seen { key, lock: Some(&lock), queue: &[], now };
            let text = seen.sentences().join(" ");
            assert!(text.ends_with(&format!("release --force -- {word}`.")), "{text}");
        }
    }

    #[test]
    fn a_foreign_holder_and_a_free_key_have_advice_of_their_own() {
        let mut foreign = HeldLock::new("order:42");
        foreign.holder.free_within = None;
        let text = told(Some(&foreign), &[]);
        assert!(
            text.starts_with("`order:42` is held by a foreign client. It has no lease"),
            "{text}"
        );
        assert!(text.contains("It was not locked by lockmacro"), "{text}");
        assert!(told(None, &[]).starts_with("Nothing holds `order:42`. Nobody waits"));
        assert!(told(None, &[waiter(None, 1)]).contains("lockmacro doctor"));
    }
}
