//! Unknown names of arguments, and the arguments that were probably meant.

use crate::known::KNOWN;

/// The words of other libraries: the argument here, the advice, and the words.
const WORDS: [(&str, &str, &[&str]); 26] = [
    (
        "wait",
        "the wait for a busy lock is `wait = \"5s\"`, and the time after \
         which the lock expires is `ttl = \"300s\"`",
        &["timeout", "lock_timeout", "timeout_ms", "timeout_secs"],
    ),
    (
        "wait",
        "the wait for a busy lock is `wait = \"5s\"`",
        &[
            "wait_time",
            "wait_for",
            "wait_timeout",
            "max_wait",
            "acquire_timeout",
            "blocking",
            "blocking_timeout",
            "block",
            "patience",
        ],
    ),
    (
        "wait",
        "a call waits for a busy lock in a queue, without polling: write `wait = \"5s\"`",
        &[
            "retry",
            "retries",
            "retry_count",
            "retry_times",
            "retry_delay",
            "retry_interval",
            "retry_jitter",
            "max_retries",
            "attempts",
            "backoff",
            "poll",
            "poll_interval",
            "sleep",
        ],
    ),
    (
        "ttl",
        "the time after which the lock expires is `ttl = \"300s\"`",
        &[
            "lease",
            "lease_time",
            "lease_duration",
            "expire",
            "expires",
            "expires_in",
            "expire_time",
            "expire_after",
            "expiration",
            "expiry",
            "ex",
            "px",
            "pexpire",
            "lock_at_most",
            "lock_at_most_for",
            "at_most",
            "max_age",
            "duration",
        ],
    ),
    (
        "renew",
        "a lock without `ttl` is renewed while the body runs: remove this, or write `renew` beside \
         a `ttl`",
        &[
            "auto_renew",
            "auto_renewal",
            "auto_extend",
            "extend",
            "extension",
            "heartbeat",
            "heartbeat_interval",
            "keep_alive",
            "keepalive",
            "refresh",
            "renewal",
            "watchdog",
            "lock_watchdog_timeout",
        ],
    ),
    (
        "min_hold",
        "the shortest time for which the lock is kept is `min_hold = \"5s\"`",
        &[
            "lock_at_least",
            "lock_at_least_for",
            "at_least",
            "min_lock_time",
            "cooldown",
            "throttle",
        ],
    ),
    (
        "max_hold",
        "the end of renewal is `max_hold = \"10m\"`",
        &["max_lease", "max_lock_time", "max_duration", "max_renewal"],
    ),
    (
        "on_busy",
        "the policy that skips the body when the lock is busy is `on_busy = skip`",
        &["skip", "skip_if_locked", "skip_locked"],
    ),
    (
        "on_busy",
        "the policy that calls another function when the lock is busy is `on_busy = \
         fallback(path)`",
        &["fallback", "or_else", "otherwise"],
    ),
    (
        "on_busy",
        "the policy that runs the call later when the lock is busy is `on_busy = defer(\"30s\")`",
        &["defer", "delay", "delay_queue", "enqueue", "later", "queue", "reschedule"],
    ),
    (
        "on_busy",
        "the policy for a busy lock is `on_busy = error`, `skip`, `fallback(path)` or \
         `defer(\"30s\")`",
        &[
            "busy",
            "error",
            "fail_fast",
            "if_locked",
            "nowait",
            "no_wait",
            "on_conflict",
            "on_contended",
            "on_contention",
            "on_fail",
            "on_failure",
            "on_error",
            "on_locked",
            "on_timeout",
            "try_lock",
        ],
    ),
    (
        "on_lost",
        "the policy for a lost lock is `on_lost = cancel`, `error`, `finish` or the path of a \
         function",
        &[
            "cancel",
            "finish",
            "lost",
            "on_expire",
            "on_expired",
            "on_expiry",
            "on_loss",
            "rollback",
        ],
    ),
    (
        "release",
        "to return before the release is answered, write `release = background`",
        &[
            "async_release",
            "background",
            "background_release",
            "fire_and_forget",
            "release_async",
            "release_in_background",
            "unlock",
        ],
    ),
    (
        "guard",
        "the body's name for the guard is `guard = lock`, and for the number that a resource \
         checks `fence = fence`",
        &["token"],
    ),
    ("guard", "the body's name for the guard is `guard = lock`", &["handle", "lock", "lock_guard"]),
    (
        "fence",
        "the body's name for the number that a resource checks is `fence = fence`",
        &["epoch", "fencing", "fencing_token", "fence_token", "generation"],
    ),
    (
        "manager",
        "a manager has the connection to the server: write `manager = self.locks`, or nothing for \
         the installed manager",
        &[
            "addr",
            "backend",
            "cache",
            "client",
            "conn",
            "connection",
            "dsn",
            "host",
            "lock_manager",
            "locks",
            "nodes",
            "pool",
            "provider",
            "redis",
            "redis_url",
            "redlock",
            "server",
            "servers",
            "store",
            "uri",
            "url",
        ],
    ),
    (
        "shared",
        "a lock that others may share is `shared`, and one without it is exclusive",
        &["read", "read_lock", "read_only", "reader", "rlock", "share", "shared_lock"],
    ),
    (
        "shared",
        "a lock is exclusive unless it is `shared`: remove this",
        &["exclusive", "mutex", "write", "write_lock", "writer", "xlock"],
    ),
    (
        "permits",
        "how many may hold the lock at once is `permits = 3`",
        &[
            "capacity",
            "concurrency",
            "concurrent",
            "holders",
            "limit",
            "max",
            "max_concurrency",
            "max_concurrent",
            "max_holders",
            "max_permits",
            "parallel",
            "parallelism",
            "permit",
            "semaphore",
            "slots",
        ],
    ),
    (
        "key",
        "the key of the lock is `key = \"order:<id>\"`",
        &["id", "lock_id", "lock_key", "lock_name", "lock_on", "on", "prefix", "resource", "value"],
    ),
    (
        "message",
        "the text of the busy error is `message = \"order <id> is being audited\"`",
        &["busy_message", "description", "err_msg", "error_message", "msg", "text"],
    ),
    (
        "crate",
        "the path of the runtime is `crate = my_crate::lockmacro_runtime`",
        &["krate", "crate_path", "path", "runtime"],
    ),
    (
        "policy",
        "settings that functions share are a constant: write `const ORDERS: LockPolicy = ..;` and \
         `policy = ORDERS`",
        &["config", "defaults", "extends", "options", "preset", "profile", "settings", "template"],
    ),
    (
        "when",
        "whether a call needs the lock is `when = !dry_run`",
        &["condition", "enabled", "if", "if_true", "only_if", "only_when", "predicate", "unless"],
    ),
    (
        "unlocked",
        "the body without the lock, for callers that hold it, is `unlocked = audit_held`",
        &["inner", "no_lock", "nolock", "raw", "unguarded", "without_lock"],
    ),
];

/// The argument that was probably meant, if there is one, and the message for an unknown name.
pub(crate) fn refusal(name: &str) -> (Option<&'static str>, String) {
    let unknown = format!("unknown argument `{name}`");
    let plain = plain(name);
    if let Some((meant, write, _)) =
        WORDS.iter().find(|(.., words)| words.iter().any(|word| self::plain(word) == plain))
    {
        return (Some(meant), format!("{unknown}: {write}"));
    }
    let known = KNOWN.iter().map(|(known, _)| *known);
    let slips = known.clone().map(|known| (slips(&plain, &self::plain(known)), known));
    if let Some((_, near)) = slips.min()
        && is_slip(name, near)
    {
        return (Some(near), format!("{unknown}: did you mean `{near}`?"));
    }
    let known: Vec<_> = known.map(|known| format!("`{known}`")).collect();
    (None, format!("{unknown}: the known ones are {}", known.join(", ")))
}

/// Whether a word is a known one with few typing mistakes, or none.
pub(crate) fn is_slip(word: &str, known: &str) -> bool {
    let (word, known) = (plain(word), plain(known));
    slips(&word, &known) <= known.len() / 3
}

/// `min-hold`, `minHold` and `MIN_HOLD` are one word.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The number of typing mistakes between two words. Two swapped letters are one mistake.
fn slips(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let substitution = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut slips = substitution.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            let is_swap =
                i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
            if is_swap {
                slips = slips.min(rows[i - 2][j - 2] + 1);
            }
            row.push(slips);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}
