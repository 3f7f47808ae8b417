//! The arguments of the attribute by name.

/// An argument, an example, and what the example is.
pub(crate) type Known = (&'static str, &'static str, &'static str);

pub(crate) const KNOWN: [Known; 19] = [
    ("key", "key = \"order:<id>\"", "the key of the lock is"),
    ("ttl", "ttl = \"300s\"", "the time after which the lock expires is"),
    (
        "renew",
        "renew",
        "a lock without `ttl` is renewed while the body runs: remove this, or, beside a `ttl`, \
         write",
    ),
    ("max_hold", "max_hold = \"10m\"", "the end of renewal is"),
    ("min_hold", "min_hold = \"5s\"", "the shortest time for which the lock is kept is"),
    ("wait", "wait = \"5s\"", "the wait for a busy lock is"),
    ("shared", "shared", "a lock that others may share is"),
    ("permits", "permits = 3", "how many may hold the lock at once is"),
    (
        "on_busy",
        "on_busy = skip",
        "what happens when the lock is busy is `on_busy = error`, `fallback(path)`, \
         `defer(\"30s\")`, `reuse`, or",
    ),
    (
        "on_lost",
        "on_lost = error",
        "what happens when the lock is lost is `on_lost = cancel`, `finish`, the path of a \
         function, or",
    ),
    ("release", "release = background", "to return before the release is answered, write"),
    ("guard", "guard = lock", "the body's name for the guard is"),
    ("fence", "fence = fence", "the body's name for the number that a resource checks is"),
    ("message", "message = \"order <id> is being audited\"", "the text of the busy error is"),
    ("holder_note", "holder_note = \"<user.name>\"", "the note for callers that find it busy is"),
    (
        "manager",
        "manager = self.locks",
        "the server and its connection are those of the installed manager, or of",
    ),
    ("map_err", "map_err = OrderError::from_lock", "the function that converts the error is"),
    ("name", "name = \"orders.audit\"", "the name in logs and metrics is"),
    ("crate", "crate = my_crate::lockmacro_runtime", "the path of the runtime is"),
];

pub(crate) fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|(known, ..)| *known == name)
}

pub(crate) fn example(name: &str) -> &'static str {
    known(name).map_or("", |(_, example, _)| example)
}

/// The advice to write an argument, for a word that means the same.
pub(crate) fn advice(name: &str) -> String {
    known(name).map_or_else(String::new, |(_, example, is)| format!("{is} `{example}`"))
}
