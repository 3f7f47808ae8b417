//! Unknown names of arguments, and the arguments that were probably meant.

use crate::known::{self, KNOWN};
use crate::slips::{has_part, is_word, slips};

/// The words of other libraries: the argument here, if there is one, the advice, if it needs one of
/// its own, and the words. A name with such a word in it means the same.
const WORDS: [(&str, &str, &str); 41] = [
    (
        "wait",
        "the wait for a busy lock is `wait = \"5s\"`, and the time after which the lock expires \
         is `ttl = \"300s\"`",
        "timeout",
    ),
    (
        "wait",
        "a call waits for a busy lock in a queue, without polling: write `wait = \"5s\"`",
        "attempts backoff poll queue retries retry sleep tries",
    ),
    ("wait", "", "acquire_timeout block blocking blocking_timeout deadline patience"),
    (
        "on_busy",
        "the longest time for which calls put a stored one off is `on_busy = defer(\"30s\", \
         latest, at_most = \"5m\")`, and the time after which the lock expires is `ttl = \"300s\"`",
        "at_most",
    ),
    (
        "ttl",
        "",
        "at_most_for lock_at_most_for duration ex expiration expire expires expiry lease \
         max_age pexpire px",
    ),
    ("renew", "", "extend extension heartbeat keep_alive keepalive refresh renewal watchdog"),
    ("min_hold", "", "at_least cooldown keep_for min_lock_time throttle"),
    ("max_hold", "", "max_duration max_lease max_lock_time max_renewal"),
    (
        "on_busy",
        "the policy that skips the body when the lock is busy is `on_busy = skip`",
        "ignore skip",
    ),
    (
        "on_busy",
        "the policy that calls another function when the lock is busy is `on_busy = \
         fallback(path)`",
        "fallback or_else otherwise",
    ),
    (
        "on_busy",
        "the policy that runs the call later when the lock is busy is `on_busy = defer(\"30s\")`",
        "defer delay enqueue later reschedule",
    ),
    (
        "on_busy",
        "the policy that has callers share the holder's value is `on_busy = reuse`, or \
         `on_busy = reuse(keep = \"10s\")`",
        "cache cached coalesce dedup memoize once reuse share single_flight singleflight",
    ),
    (
        "on_busy",
        "the policy that keeps the value for later callers is `on_busy = reuse(keep = \"10s\")`",
        "keep",
    ),
    (
        "on_busy",
        "a repeated request gets the value of the first one by `on_busy = reuse(keep = \"24h\", \
         same = \"<amount>\")`, with the request's own key in that of the lock, as in `key = \
         \"payment:<request>\"`",
        "idempotency idempotency_key idempotent same",
    ),
    (
        "on_busy",
        "the policy that runs only the latest of several calls is `on_busy = defer(\"5s\", \
         latest)`",
        "debounce latest newest replace supersede",
    ),
    (
        "on_busy",
        "the policy that keeps one stored call of a key is `on_busy = defer(\"30s\", unique)`",
        "unique",
    ),
    (
        "on_busy",
        "",
        "busy error fail_fast fail_strategy failure_strategy if_locked lock_failure_strategy \
         lock_timeout_strategy no_wait nowait on_conflict on_contended on_contention on_error \
         on_fail on_failure on_locked on_timeout try_lock",
    ),
    (
        "on_lost",
        "",
        "cancel finish lost on_expire on_expired on_expiry on_loss release_timeout_strategy \
         rollback",
    ),
    (
        "",
        "an `async fn` awaits its lock, and a lock of another function blocks the thread: remove \
         this",
        "async is_async",
    ),
    ("release", "", "background fire_and_forget"),
    (
        "guard",
        "the body's name for the guard is `guard = lock`, and for the number that a resource \
         checks `fence = fence`",
        "token",
    ),
    ("fence", "", "epoch fencing fencing_token generation"),
    (
        "manager",
        "",
        "addr backend cache client conn connection dsn host locks nodes pool provider redis server \
         servers store uri url",
    ),
    ("manager", "a quorum is that of the servers in the manager's URL", "quorum redlock"),
    (
        "shared",
        "a lock is exclusive and may be acquired again inside its body, several keys are a list, \
         and waiters are served in the order of their requests: remove this, or write `shared` for \
         a lock that others may share and `permits = 3` for a semaphore",
        "lock_model model",
    ),
    ("shared", "", "lock_type mode read reader readers rlock rwlock share"),
    (
        "shared",
        "a lock is exclusive unless it is `shared`: remove this",
        "exclusive mutex write writer xlock",
    ),
    (
        "permits",
        "",
        "capacity concurrency concurrent holders limit max parallel parallelism permit semaphore \
         slots",
    ),
    ("key", "", "id lock_id lock_name on prefix resource value"),
    ("message", "", "description msg text"),
    ("crate", "", "krate path runtime"),
    (
        "",
        "settings that functions share are constants: write `ttl = TTL` and `const TTL: Duration \
         = Duration::from_secs(300);`, or give the manager a `default_ttl` and a `default_wait`",
        "config defaults extends options policy preset profile settings template",
    ),
    (
        "",
        "every call takes the lock: write an `if` around the call, or a private function that \
         both call; a call inside the lock joins it",
        "condition enabled if if_true inner no_lock nolock predicate raw unguarded unless unlock \
         unlocked when without_lock",
    ),
    ("map_err", "", "convert error_map into_err map_error"),
    ("holder_note", "", "holder owner"),
    ("name", "", "label metric tag title"),
    (
        "",
        "there is no rate limit: `permits = 3` is how many may hold the lock at once, and \
         `min_hold = \"5s\"` how long it is kept at least",
        "per_second qps rate",
    ),
    (
        "",
        "waiters are served in the order of their requests, without priorities: remove this",
        "fair fairness fifo priority unfair weight",
    ),
    (
        "",
        "a lock may be acquired again inside its body: remove this",
        "recursive reentrant reentry",
    ),
    ("", "each duration has its unit, as in `ttl = \"300s\"`: remove this", "time_unit unit"),
    ("guard", "", "handle lock"),
];

/// The argument that was probably meant, if there is one, and the advice.
pub(crate) type Meant = (Option<&'static str>, String);

/// The meaning of another library's word here.
pub(crate) fn advice(word: &str) -> Option<Meant> {
    row(|one| is_word(word, one))
}

/// The message for a setting in the parentheses of a policy that belongs to another policy.
pub(crate) fn setting(name: &str) -> Option<String> {
    match advice(name)? {
        (Some("on_busy"), advice) => Some(format!("unknown setting `{name}`: {advice}")),
        _ => None,
    }
}

/// The first row of the table that has such a word.
fn row(is_it: impl Fn(&str) -> bool) -> Option<Meant> {
    let has_it = |words: &str| words.split_whitespace().any(&is_it);
    let (meant, advice, _) = WORDS.iter().find(|(.., words)| has_it(words))?;
    let advice = match *advice {
        "" => known::advice(meant),
        own => own.to_owned(),
    };
    Some((Some(*meant).filter(|meant| !meant.is_empty()), advice))
}

/// The argument that was probably meant by a word, if there is one, and the mend.
pub(crate) fn mend(word: &str) -> Option<Meant> {
    let names = || KNOWN.iter().map(|(known, ..)| *known);
    let near = names().min_by_key(|known| slips(word, known));
    let near = near.filter(|near| slips(word, near) <= near.len() / 3);
    let near = near.map(|near| (Some(near), format!("did you mean `{near}`?")));
    let part = || names().filter(|known| has_part(word, known)).max_by_key(|known| known.len());
    // Short words are parts of too many names.
    let parts = || row(|one| one.len() > 3 && has_part(word, one));
    let part = || part().map(|known| (Some(known), known::advice(known)));
    advice(word).or(near).or_else(part).or_else(parts)
}

/// The argument that was probably meant, if there is one, and the message for an unknown name.
pub(crate) fn refusal(name: &str) -> Meant {
    let (meant, mend) = mend(name).unwrap_or_else(|| {
        let known: Vec<_> = KNOWN.iter().map(|(known, ..)| format!("`{known}`")).collect();
        (None, format!("the known ones are {}", known.join(", ")))
    });
    (meant, format!("unknown argument `{name}`: {mend}"))
}
