//! The names of the arguments, and what a name that is none of them probably means.

use crate::fix::slips::{is_word, slips};
use crate::messages;

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

macro_rules! words {
    ($($($word:ident)+ = $advice:literal;)*) => {
        [$((&[$(stringify!($word)),+], $advice)),*]
    };
}

/// The words that public code has for other libraries' locks, and those of a policy's settings.
const WORDS: [(&[&str], &str); 11] = words! {
    acquire_timeout blocking blocking_timeout retries retry retry_count sleep timeout wait_time =
        "a call waits for a busy lock in a queue, without polling: write `wait = \"5s\"`, and \
         `ttl = \"300s\"` for the time after which the lock expires";
    duration ex expiration expire lease lease_time lock_at_most_for lock_timeout px =
        "the time after which the lock expires is `ttl = \"300s\"`";
    auto_extend auto_renew auto_renewal extend heartbeat watchdog =
        "a lock without `ttl` is renewed while the body runs: remove this, or, beside a `ttl`, \
         write `renew`";
    lock_at_least_for =
        "the shortest time for which the lock is kept is `min_hold = \"5s\"`";
    at_most attempts cache debounce defer delay fail_strategy fallback idempotency_key keep latest
    lock_failure_strategy on_conflict on_failure on_locked reuse same single_flight skip unique =
        "what happens when the lock is busy is `on_busy = error`, `skip`, `fallback(path)`, \
         `defer(\"30s\", latest, at_most = \"5m\")` or `reuse(keep = \"10s\", same = \
         \"<amount>\")`";
    client connection host redis redis_client url =
        "the server and its connection are those of the installed manager, or of `manager = \
         self.locks`";
    concurrency limit lock_model lock_type max_concurrency mode read_lock rwlock semaphore =
        "a lock is exclusive, `shared` lets others in that share it, and `permits = 3` so many";
    id keys lock_name prefix resource value =
        "the key of the lock is `key = \"order:<id>\"`";
    fencing_token lock token =
        "the body's name for the guard is `guard = lock`, and for the number that a resource \
         checks `fence = fence`";
    condition enabled if unless =
        "every call takes the lock: write an `if` around the call, or a private function that both \
         call; a call inside the lock joins it";
    config defaults policy settings =
        "settings that functions share are constants: write `ttl = TTL` and `const TTL: Duration = \
         Duration::from_secs(300);`, or give the manager a `default_ttl` and a `default_wait`";
};

/// The example of an argument.
pub(crate) fn example(name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, example)| *example)
}

/// The meaning of another library's word here.
pub(crate) fn advice(word: &str) -> Option<&'static str> {
    let has_it = |words: &[&str]| words.iter().any(|one| is_word(word, one));
    WORDS.iter().find(|(words, _)| has_it(words)).map(|(_, advice)| *advice)
}

/// The message for an unknown name.
pub(crate) fn unknown(name: &str) -> String {
    let names = || KNOWN.iter().map(|(known, _)| *known);
    let near = names().min_by_key(|known| slips(name, known));
    let near = near.filter(|near| slips(name, near) <= near.len() / 3);
    let fix = match (advice(name), near) {
        (Some(advice), _) => advice.to_owned(),
        (None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None) => {
            let known: Vec<_> = names().map(|known| format!("`{known}`")).collect();
            format!("the known ones are {}", known.join(", "))
        }
    };
    messages::unknown_argument(name, fix)
}
