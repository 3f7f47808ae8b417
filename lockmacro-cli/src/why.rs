//! The command `why`: a paragraph about a key, for somebody who is called because it is stuck.

use std::time::{Duration, SystemTime};

use lockmacro_runtime::inspect::{HeldLock, QueuedWaiter};
use lockmacro_runtime::{Holder, LockError, LockManager};
use serde_json::{Value, json};

use crate::args::{line, url_of_arguments};
use crate::locks::{HOLDERS_MAX, as_json, holder_as_json, holders_of};
use crate::show::{document, millis, plain, shell, time};
use crate::{Failure, Report};

/// Most places in the queue that are counted.
const COUNTED: usize = 1_000;
/// A lock is stuck that is held for this many times its usual time, and at least this long.
const TIMES: u32 = 10;
const LONG: Duration = Duration::from_secs(10);
/// The same of a lock whose usual time nobody knows.
const LONG_UNKNOWN: Duration = Duration::from_secs(60);
/// Most holders that are named in the paragraph.
const NAMED: usize = 5;

/// A key, as far as it is known.
struct Seen<'a> {
    key: &'a str,
    lock: Option<&'a HeldLock>,
    /// The one that asked first at the beginning.
    holders: &'a [Holder],
    /// There are more of them, and one of those may have asked earlier.
    truncated: bool,
    queue: &'a [QueuedWaiter],
    /// The open transaction that has locked the last fence, as a check does.
    checked_by: Option<&'a str>,
    now: SystemTime,
    /// The URL, where the environment has another one.
    url: Option<&'a str>,
}

pub async fn explain(
    manager: &LockManager,
    url: &str,
    key: &str,
    json: bool,
) -> Result<Report, Failure> {
    let lock = manager.inspector().lock(key).await?;
    let (holders, truncated) = match &lock {
        Some(lock) => holders_of(manager, lock).await?,
        None => (Vec::new(), false),
    };
    let queue = match manager.inspector().waiters(key, COUNTED).await {
        Ok(queue) => queue.items,
        Err(LockError::KeyNotALock { .. }) if lock.is_some() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let checked_by = manager.inspector().checked_by(key).await?;
    let seen = Seen {
        key,
        lock: lock.as_ref(),
        holders: &holders,
        truncated,
        queue: &queue,
        checked_by: checked_by.as_deref(),
        now: SystemTime::now(),
        url: url_of_arguments(url),
    };
    let text = seen.sentences().join(" ");
    let text = if json {
        document(&json!({
            "key": key,
            "text": text,
            "lock": lock.as_ref().map(as_json),
            "holders": holders.iter().map(holder_as_json).collect::<Value>(),
            "holders_truncated": truncated,
            "held_ms": millis(seen.held()),
            "asked_ms": millis(seen.asked()),
            "usual_hold_ms": millis(seen.usual()),
            "is_stuck": seen.is_stuck(),
            "processes": queue.len(),
            "callers": seen.callers(),
            "checked_by": checked_by,
            "first_waits_ms": millis(queue.first().and_then(|first| seen.since(first.asked))),
        }))
    } else {
        text + "\n"
    };
    Ok(Report { text, done: true })
}

impl Seen<'_> {
    fn sentences(&self) -> Vec<String> {
        let Some(lock) = self.lock else {
            let next = match self.queue {
                // What is said of the transaction ends with what to do.
                _ if self.checked_by.is_some() => None,
                [] => Some(
                    "A caller that is refused all the same uses another key, key_prefix, server or \
                     database: compare it with `lockmacro locks`.",
                ),
                _ => Some(
                    "The first one has it within seconds, or see what `lockmacro doctor` says.",
                ),
            };
            let free = format!("Nothing holds `{}`.", plain(self.key));
            let waiters = Some(self.waiters());
            let parts = [Some(free), self.checked(), waiters, next.map(str::to_owned)];
            return parts.into_iter().flatten().collect();
        };
        let held = if lock.sharing.is_some() { self.shared(lock) } else { self.holder(lock) };
        let parts = [Some(held), self.checked(), self.compared(), Some(self.waiters())];
        parts.into_iter().flatten().chain([self.advice(lock)]).collect()
    }

    /// How long ago it was, by the clock of another machine.
    fn since(&self, at: Option<SystemTime>) -> Option<Duration> {
        Some(self.now.duration_since(at?).unwrap_or_default())
    }

    /// The holder that has had the lock for longest, if any still has it.
    fn suspect(&self) -> Option<&Holder> {
        self.holders.iter().find(|holder| !holder.is_kept)
    }

    /// How long the lock is held, where that is known: not of a holder that could wait for it.
    fn held(&self) -> Option<Duration> {
        self.since(self.suspect()?.since)
    }

    /// How long ago the holder asked for the lock.
    fn asked(&self) -> Option<Duration> {
        self.since(self.suspect()?.asked)
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
        if !self.holders.is_empty() && self.suspect().is_none() {
            return Some(false);
        }
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
        let held = format!("`{}` is held by {}.", plain(self.key), self.one(&lock.holder));
        match lock.holder.free_within {
            _ if lock.holder.is_kept => held,
            None => held + " It has no lease, and stays until its key is deleted.",
            left => held + &format!(" Its lease ends in {}, unless it is renewed.", time(left)),
        }
    }

    fn shared(&self, lock: &HeldLock) -> String {
        let all = lock.sharing.unwrap_or_default();
        let count = match (all, lock.holder.permits) {
            (count, Some(permits)) => format!("{count} of {permits} permits"),
            (1, None) => "one shared holder".to_owned(),
            (count, None) => format!("{count} shared holders"),
        };
        let named: Vec<_> =
            self.holders.iter().take(NAMED).map(|holder| self.one(holder)).collect();
        let more = match all.saturating_sub(NAMED) {
            0 => String::new(),
            more if self.truncated => format!(
                "; and {more} more. Only the {HOLDERS_MAX} holders whose leases end first were \
                 compared"
            ),
            more => format!("; and {more} more, which `--json` lists"),
        };
        format!("`{}` is held by {count}: {}{more}.", plain(self.key), named.join("; "))
    }

    /// A holder, and for how long it has had the lock.
    fn one(&self, holder: &Holder) -> String {
        let owner = plain(&holder.to_string());
        if holder.is_kept {
            let left = time(holder.free_within);
            return format!("{owner}, which has ended, and whose `min_hold` lasts another {left}");
        }
        match (self.since(holder.since), self.since(holder.asked)) {
            (None, None) => owner,
            (None, asked) => format!("{owner}, which asked for it {} ago", time(asked)),
            (held, _) => format!("{owner} for {}", time(held)),
        }
    }

    fn checked(&self) -> Option<String> {
        let transaction = plain(self.checked_by?);
        Some(format!(
            "Whatever becomes of the lock, `{}` is granted to nobody else until a transaction has \
             ended that has locked its fence, as a check does: {transaction}. If that transaction \
             hangs, end it: `SELECT pg_terminate_backend(…)` with the number of its process, or \
             `ROLLBACK PREPARED` or `COMMIT PREPARED`.",
            plain(self.key)
        ))
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
        if self.lock.is_some_and(|lock| lock.waiters.is_none()) {
            return "Who waits cannot be seen: its queue key holds another type of value."
                .to_owned();
        }
        let Some(first) = self.queue.first() else {
            return "Nobody waits in the queue, in which callers of the holder's own process and \
                    clients that poll are not seen."
                .to_owned();
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
        let Some(suspect) = self.suspect() else {
            return "There is nothing to do: after a release the next call would run too early."
                .to_owned();
        };
        let is_stuck = self.is_stuck();
        if is_stuck == Some(false) && self.queue.is_empty() {
            return "There is nothing to do.".to_owned();
        } else if is_stuck == Some(false) {
            return "It is only busy: if that is too slow, hold it for a shorter time, or lock \
                    smaller keys."
                .to_owned();
        }
        let owner = suspect.owner.as_ref().unwrap_or(owner);
        let parts: Vec<_> = owner.split(':').collect();
        let is_number = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        let (process, host, id) = match *parts {
            [host, id, ..] if is_number(id) => (format!("process {id} on {host}"), host, id),
            _ => (owner.clone(), "its host", "PID"),
        };
        let mut first = format!("Look at {}.", plain(&process));
        if is_stuck.is_none() {
            let again = time(Some(self.long()));
            let asks = "It may have waited itself: ask again in";
            first = format!("{asks} {again}, and go on if it still has the lock. {first}");
        }
        // A function has a name, which comes last.
        let hangs = "If that is `lockmacro run` and hangs, end";
        let end = match (parts.len(), &suspect.note) {
            (..=2, Some(_)) if id == "1" => format!("{hangs} its container, as by `docker kill`."),
            (..=2, Some(_)) => {
                format!("{hangs} it on {} by `kill {id}`: its command gets that too.", plain(host))
            }
            _ if self.checked_by.is_some() => "If it hangs, end it.".to_owned(),
            _ => "If it hangs, end it, and the lock is free when the lease ends.".to_owned(),
        };
        let dead = match lock.sharing {
            None => format!("If it is dead, do not wait: {}", self.release()),
            Some(_) => format!(
                "If it is dead, its place is free in {}. All holders lose the lock by {}",
                time(suspect.free_within),
                self.release()
            ),
        };
        format!("{first} {end} {dead}")
    }

    fn release(&self) -> String {
        let key = if plain(self.key) == self.key { shell(self.key) } else { "KEY".to_owned() };
        let (line, rest) = line(self.url, &format!("release --force -- {key}"));
        format!("`{line}`{rest}.")
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
        let holders: Vec<_> = lock.iter().map(|lock| lock.holder.clone()).collect();
        told_of("order:42", lock, &holders, queue, None)
    }

    fn told_of(
        key: &str,
        lock: Option<&HeldLock>,
        holders: &[Holder],
        queue: &[QueuedWaiter],
        url: Option<&str>,
    ) -> String {
        let now = SystemTime::UNIX_EPOCH + NOW;
        let checked_by = None;
        let seen = Seen { key, lock, holders, truncated: false, queue, checked_by, now, url };
        seen.sentences().join(" ")
    }

    fn held(seconds: u64) -> HeldLock {
        let mut lock = HeldLock::new("order:42");
        (lock.holder, lock.waiters) = (Holder::new("web-3:4711:audit"), Some(0));
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
            text.contains(
                "ask again in 10.0 s, and go on if it still has the lock. Look at process"
            ),
            "{text}"
        );
        lock.holder.asked = ago(9);
        assert!(told(Some(&lock), &[waiter(Some(300), 1)]).contains("It is only busy"));
    }

    #[test]
    fn the_oldest_of_those_that_share_a_lock_is_the_one_to_look_at() {
        let mut lock = held(2);
        (lock.sharing, lock.holder.permits) = (Some(3), Some(3));
        let mut ended = held(900).holder;
        ended.is_kept = true;
        let mut other = Holder::new("web-9:12:audit");
        (other.asked, other.free_within) = (ago(840), Some(Duration::from_secs(7)));
        other.since = other.asked;
        let holders = [ended, other, lock.holder.clone()];
        let text = told_of("order:42", Some(&lock), &holders, &[], None);
        let begins = "`order:42` is held by 3 of 3 permits: web-3:4711:audit, which has ended, and \
                      whose `min_hold` lasts another 12.0 s; web-9:12:audit for 14 min 0 s; web-3";
        assert!(text.starts_with(begins), "{text}");
        let ends = "Look at process 12 on web-9. If it hangs, end it, and the lock is free when the \
                    lease ends. If it is dead, its place is free in 7.0 s. All holders lose the lock \
                    by `lockmacro release --force -- order:42`.";
        assert!(text.ends_with(ends), "{text}");
    }

    #[test]
    fn a_lock_that_min_hold_keeps_is_not_stuck() {
        let mut lock = held(840);
        lock.holder.is_kept = true;
        let text = told(Some(&lock), &[waiter(Some(300), 1)]);
        let begins = "`order:42` is held by web-3:4711:audit, which has ended, and whose \
                      `min_hold` lasts another 12.0 s. ";
        assert!(text.starts_with(begins) && text.contains("nothing to do"), "{text}");
        assert!(!text.contains("--force"), "{text}");
    }

    #[test]
    fn a_command_of_the_tool_is_ended_by_the_tool() {
        let mut lock = held(840);
        lock.holder.owner = Some("web-3:4711".to_owned());
        lock.holder.note = Some("report.sh".to_owned());
        let text = told(Some(&lock), &[]);
        let line = "end it on web-3 by `kill 4711`: its command gets that too.";
        assert!(text.contains(line), "{text}");
        // Its children are all processes of its container.
        lock.holder.owner = Some("web-3:1".to_owned());
        let text = told(Some(&lock), &[]);
        assert!(text.contains("`docker kill`.") && !text.contains("`kill "), "{text}");
    }

    #[test]
    fn the_line_that_releases_names_a_url_that_the_environment_does_not_have() {
        let lock = held(840);
        let holders = [lock.holder.clone()];
        let of_login = "`lockmacro --url … release --force -- k`, with the URL in place of `…`.";
        for (url, line) in [
            ("redis://web-1:6379", "`lockmacro --url redis://web-1:6379 release --force -- k`."),
            ("redis://u:secret@web-1", of_login),
            ("redis://u:my secret@web-1", of_login),
            ("redis+unix:///tmp/u.sock?pass=secret", of_login),
            ("redis-sentinel://web-1/main?sentinel_password=secret", of_login),
        ] {
            let text = told_of("k", Some(&lock), &holders, &[], Some(url));
            assert!(text.ends_with(line) && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn a_key_of_others_is_one_word_of_the_command() {
        let lock = held(840);
        let holders = [lock.holder.clone()];
        for (key, word) in
            [("a'; reboot; '", r"'a'\''; reboot; '\'''"), ("a\nb", "KEY"), ("-x", "-x")]
        {
            let text = told_of(key, Some(&lock), &holders, &[], None);
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
