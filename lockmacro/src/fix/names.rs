//! The names of the arguments, and what a name that is none of them probably means.

use crate::fix::slips::{has_part, is_word, slips};

/// The arguments, each with an example.
pub(crate) const KNOWN: [(&str, &str); 19] = [
    ("key", "key = \"order:<id>\""),
    ("ttl", "ttl = \"300s\""),
    ("renew", "renew"),
    ("max_hold", "max_hold = \"10m\""),
    ("min_hold", "min_hold = \"5s\""),
    ("wait", "wait = \"5s\""),
    ("shared", "shared"),
    ("permits", "permits = 3"),
    ("on_busy", "on_busy = skip"),
    ("on_lost", "on_lost = error"),
    ("release", "release = background"),
    ("guard", "guard = lock"),
    ("fence", "fence = fence"),
    ("message", "message = \"order <id> is being audited\""),
    ("holder_note", "holder_note = \"<user.name>\""),
    ("manager", "manager = self.locks"),
    ("map_err", "map_err = OrderError::from_lock"),
    ("name", "name = \"orders.audit\""),
    ("crate", "crate = my_crate::lockmacro_runtime"),
];

/// The words that public code has for other libraries' locks: the argument here, if there is one,
/// the advice, and the words.
const WORDS: [(&str, &str, &str); 15] = [
    (
        "wait",
        "the wait for a busy lock is `wait = \"5s\"`, and the time after which the lock expires \
         is `ttl = \"300s\"`",
        "timeout",
    ),
    (
        "wait",
        "a call waits for a busy lock in a queue, without polling: write `wait = \"5s\"`",
        "acquire_timeout blocking blocking_timeout retries retry retry_count sleep wait_time",
    ),
    (
        "ttl",
        "the time after which the lock expires is `ttl = \"300s\"`",
        "duration ex expiration expire lease lease_time lock_at_most_for lock_timeout px",
    ),
    (
        "renew",
        "a lock without `ttl` is renewed while the body runs: remove this, or, beside a `ttl`, \
         write `renew`",
        "auto_extend auto_renew auto_renewal extend heartbeat watchdog",
    ),
    (
        "min_hold",
        "the shortest time for which the lock is kept is `min_hold = \"5s\"`",
        "lock_at_least_for",
    ),
    (
        "on_busy",
        "what happens when the lock is busy is `on_busy = error`, `skip`, `fallback(path)`, \
         `defer(\"30s\")` or `reuse`",
        "defer fail_strategy fallback lock_failure_strategy on_conflict on_failure on_locked reuse \
         skip",
    ),
    (
        "on_busy",
        "the settings of a job are in `on_busy = defer(\"30s\", latest, at_most = \
         \"5m\")`",
        "at_most attempts debounce delay latest unique",
    ),
    (
        "on_busy",
        "callers share a value under `on_busy = reuse(keep = \"10s\")`, and `same = \"<amount>\"` \
         beside `keep` is for repeated requests",
        "cache idempotency_key keep same single_flight",
    ),
    (
        "manager",
        "the server and its connection are those of the installed manager, or of `manager = \
         self.locks`",
        "client connection host redis redis_client url",
    ),
    (
        "shared",
        "a lock is exclusive, `shared` lets others in that share it, and `permits = 3` makes it a \
         semaphore",
        "lock_model lock_type mode read_lock rwlock",
    ),
    (
        "permits",
        "how many may hold the lock at once is `permits = 3`",
        "concurrency limit max_concurrency semaphore",
    ),
    (
        "key",
        "the key of the lock is `key = \"order:<id>\"`",
        "id keys lock_name prefix resource value",
    ),
    (
        "guard",
        "the body's name for the guard is `guard = lock`, and for the number that a resource \
         checks `fence = fence`",
        "fencing_token lock token",
    ),
    (
        "",
        "every call takes the lock: write an `if` around the call, or a private function that \
         both call; a call inside the lock joins it",
        "condition enabled if unless",
    ),
    (
        "",
        "settings that functions share are constants: write `ttl = TTL` and `const TTL: Duration \
         = Duration::from_secs(300);`, or give the manager a `default_ttl` and a `default_wait`",
        "config defaults policy settings",
    ),
];

/// The argument that was probably meant, if there is one, and the advice.
pub(crate) type Meant = (Option<&'static str>, String);

/// The example of an argument.
pub(crate) fn example(name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, example)| *example)
}

/// The meaning of another library's word here.
pub(crate) fn advice(word: &str) -> Option<Meant> {
    let has_it = |words: &str| words.split_whitespace().any(|one| is_word(word, one));
    let (meant, advice, _) = WORDS.iter().find(|(.., words)| has_it(words))?;
    Some((Some(*meant).filter(|meant| !meant.is_empty()), (*advice).to_owned()))
}

/// The message for a setting in the parentheses of a policy that belongs to another policy.
pub(crate) fn setting(name: &str) -> Option<String> {
    match advice(name)? {
        (Some("on_busy"), advice) => Some(format!("unknown setting `{name}`: {advice}")),
        _ => None,
    }
}

/// The argument that was probably meant, if there is one, and the message for an unknown name.
pub(crate) fn refusal(name: &str) -> Meant {
    let names = || KNOWN.iter().map(|(known, _)| *known);
    let near = || {
        let near = names().min_by_key(|known| slips(name, known))?;
        (slips(name, near) <= near.len() / 3).then_some(near)
    };
    let part = || names().filter(|known| has_part(name, known)).max_by_key(|known| known.len());
    let did_you_mean = |meant| (Some(meant), format!("did you mean `{meant}`?"));
    let meant = advice(name).or_else(|| near().or_else(part).map(did_you_mean));
    let (meant, fix) = meant.unwrap_or_else(|| {
        let known: Vec<_> = names().map(|known| format!("`{known}`")).collect();
        (None, format!("the known ones are {}", known.join(", ")))
    });
    (meant, format!("unknown argument `{name}`: {fix}"))
}
