//! The arguments of the attribute by name.

use proc_macro2::Ident;

/// The known arguments, each with an example.
pub(crate) const KNOWN: [(&str, &str); 22] = [
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
    ("policy", "policy = ORDERS"),
    ("when", "when = !dry_run"),
    ("unlocked", "unlocked = audit_held"),
];

pub(crate) fn example(name: &Ident) -> &'static str {
    let known = KNOWN.iter().find(|(known, _)| name == known);
    known.map_or("", |(_, example)| example)
}
