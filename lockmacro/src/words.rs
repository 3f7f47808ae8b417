//! Unknown names of arguments, and the arguments that were probably meant.

use crate::known::KNOWN;
use crate::slips::{is_word, slips};

/// The words of other libraries: the argument here, if there is one, the advice, and the words.
const WORDS: [(&str, &str, &str); 31] = [
    (
        "wait",
        "the wait for a busy lock is `wait = \"5s\"`, and the time after which the lock expires \
         is `ttl = \"300s\"`",
        "lock_timeout timeout timeout_ms timeout_secs",
    ),
    (
        "wait",
        "the wait for a busy lock is `wait = \"5s\"`",
        "acquire_timeout block blocking blocking_timeout max_wait patience wait_for wait_time \
         wait_timeout",
    ),
    (
        "wait",
        "a call waits for a busy lock in a queue, without polling: write `wait = \"5s\"`",
        "attempts backoff max_retries poll poll_interval queue retries retry retry_count \
         retry_delay retry_interval retry_jitter retry_times sleep tries",
    ),
    (
        "ttl",
        "the time after which the lock expires is `ttl = \"300s\"`",
        "at_most duration ex expiration expire expire_after expire_time expires expires_in \
         expiry lease lease_duration lease_time lock_at_most lock_at_most_for max_age pexpire \
         px",
    ),
    (
        "renew",
        "a lock without `ttl` is renewed while the body runs: remove this, or write `renew` \
         beside a `ttl`",
        "auto_extend auto_renew auto_renewal extend extension heartbeat heartbeat_interval \
         keep_alive keepalive lock_watchdog_timeout refresh renewal watchdog",
    ),
    (
        "min_hold",
        "the shortest time for which the lock is kept is `min_hold = \"5s\"`",
        "at_least cooldown lock_at_least lock_at_least_for min_lock_time throttle",
    ),
    (
        "max_hold",
        "the end of renewal is `max_hold = \"10m\"`",
        "max_duration max_lease max_lock_time max_renewal",
    ),
    (
        "on_busy",
        "the policy that skips the body when the lock is busy is `on_busy = skip`",
        "ignore skip skip_if_locked skip_locked",
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
        "defer delay delay_queue enqueue later reschedule",
    ),
    (
        "on_busy",
        "the policy for a busy lock is `on_busy = error`, `skip`, `fallback(path)` or \
         `defer(\"30s\")`",
        "busy error fail_fast if_locked no_wait nowait on_conflict on_contended on_contention \
         on_error on_fail on_failure on_locked on_timeout try_lock",
    ),
    (
        "on_lost",
        "the policy for a lost lock is `on_lost = cancel`, `error`, `finish` or the path of a \
         function",
        "cancel finish lost on_expire on_expired on_expiry on_loss rollback",
    ),
    (
        "release",
        "to return before the release is answered, write `release = background`",
        "async_release background background_release fire_and_forget release_async \
         release_in_background",
    ),
    (
        "guard",
        "the body's name for the guard is `guard = lock`, and for the number that a resource \
         checks `fence = fence`",
        "token",
    ),
    ("guard", "the body's name for the guard is `guard = lock`", "handle lock lock_guard"),
    (
        "fence",
        "the body's name for the number that a resource checks is `fence = fence`",
        "epoch fence_token fencing fencing_token generation",
    ),
    (
        "manager",
        "a manager has the connection to the server: write `manager = self.locks`, or nothing \
         for the installed manager",
        "addr backend cache client conn connection dsn host lock_manager locks nodes pool \
         provider redis redis_url redlock server servers store uri url",
    ),
    (
        "shared",
        "a lock that others may share is `shared`, and one without it is exclusive",
        "lock_mode lock_type mode read read_lock read_only reader readers rlock rwlock share \
         shared_lock",
    ),
    (
        "shared",
        "a lock is exclusive unless it is `shared`: remove this",
        "exclusive mutex write write_lock writer xlock",
    ),
    (
        "permits",
        "how many may hold the lock at once is `permits = 3`",
        "capacity concurrency concurrent holders limit max max_concurrency max_concurrent \
         max_holders max_permits parallel parallelism permit semaphore slots",
    ),
    (
        "key",
        "the key of the lock is `key = \"order:<id>\"`",
        "id lock_id lock_key lock_name lock_on on prefix resource value",
    ),
    (
        "message",
        "the text of the busy error is `message = \"order <id> is being audited\"`",
        "busy_message description err_msg error_message msg text",
    ),
    (
        "crate",
        "the path of the runtime is `crate = my_crate::lockmacro_runtime`",
        "crate_path krate path runtime",
    ),
    (
        "policy",
        "settings that functions share are a constant: write `const ORDERS: LockPolicy = ..;` \
         and `policy = ORDERS`",
        "config defaults extends options preset profile settings template",
    ),
    (
        "when",
        "whether a call needs the lock is `when = !dry_run`",
        "condition enabled if if_true only_if only_when predicate unless",
    ),
    (
        "unlocked",
        "the body without the lock, for callers that hold it, is `unlocked = audit_held`",
        "inner no_lock nolock raw unguarded unlock without_lock",
    ),
    (
        "map_err",
        "the function that converts the error of the lock is `map_err = OrderError::from_lock`",
        "convert convert_err convert_error error_map into_err map_error",
    ),
    (
        "name",
        "the name in logs and metrics is `name = \"orders.audit\"`, and the note for callers \
         that find the lock busy `holder_note = \"<user.name>\"`",
        "label metric metric_name owner tag title",
    ),
    (
        "",
        "there is no rate limit: `permits = 3` is how many may hold the lock at once, and \
         `min_hold = \"5s\"` how long it is kept at least",
        "per_second qps rate rate_limit",
    ),
    (
        "",
        "waiters are always served in the order of their requests: remove this",
        "fair fairness fifo unfair",
    ),
    (
        "",
        "there are no priorities, and waiters are served in the order of their requests: remove \
         this",
        "priority weight",
    ),
];

/// The argument for a word of another library, if there is one, and the advice.
pub(crate) fn advice(word: &str) -> Option<(Option<&'static str>, &'static str)> {
    let is_it = |words: &str| words.split_whitespace().any(|one| is_word(word, one));
    let (meant, advice, _) = WORDS.iter().find(|(.., words)| is_it(words))?;
    Some((Some(*meant).filter(|meant| !meant.is_empty()), advice))
}

/// The argument that was probably meant by a word, if there is one, and the mend.
pub(crate) fn mend(word: &str) -> Option<(Option<&'static str>, String)> {
    if let Some((meant, advice)) = advice(word) {
        return Some((meant, advice.to_owned()));
    }
    let names = KNOWN.iter().map(|(known, _)| *known);
    let near = names.min_by_key(|known| slips(word, known))?;
    (slips(word, near) <= near.len() / 3).then(|| (Some(near), format!("did you mean `{near}`?")))
}

/// The argument that was probably meant, if there is one, and the message for an unknown name.
pub(crate) fn refusal(name: &str) -> (Option<&'static str>, String) {
    let (meant, mend) = mend(name).unwrap_or_else(|| {
        let known: Vec<_> = KNOWN.iter().map(|(known, _)| format!("`{known}`")).collect();
        (None, format!("the known ones are {}", known.join(", ")))
    });
    (meant, format!("unknown argument `{name}`: {mend}"))
}
