//! The rights that a user needs on a server, read from the scripts, so that the two always agree.

use std::iter;

use crate::inspect::redis::scripts as inspect;
use crate::store::redis::scripts::{self, OF_WAITERS, needed_by};
use crate::value::error::LockError;
use crate::value::key::LockKey;

/// An enum with the name and the description of each variant.
macro_rules! uses {
    ($($name:literal $about:literal => $variant:ident,)+) => {
        /// A purpose for which locks are used, see [`rights`](crate::inspect::rights).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Use {
            $(#[doc = $about] $variant,)+
        }

        impl Use {
            /// All purposes.
            pub const ALL: &[Use] = &[$(Use::$variant,)+];

            /// Returns the name, as the command line takes it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Use::$variant => $name,)+
                }
            }

            /// Returns the description.
            pub fn about(self) -> &'static str {
                match self {
                    $(Use::$variant => $about,)+
                }
            }
        }
    };
}

uses! {
    "wait" "Callers wait for locks." => Wait,
    "fence" "Locks have fences. This needs no further right." => Fence,
    "several" "Locks have several keys. This needs no further right." => Several,
    "defer" "Busy calls of any function are deferred and run by workers." => Defer,
    "inspect" "Locks are inspected, and jobs if these are used." => Inspect,
    "replicated" "Locks count once replicas have acknowledged them." => ReplicaAcks,
    "redlock" "The server is a node of a Redlock." => Redlock,
    "cluster" "The server is a node of a cluster." => Cluster,
    "database" "The URL names a database." => Database,
}

/// The commands of every manager.
const COMMANDS: [&str; 4] = ["ping", "set", "evalsha", "eval"];
/// The pattern that a server allows no other beside.
const EVERY_KEY: &str = "*";

/// Returns the rights that a Redis user needs for locks whose keys match `pattern`: keys, channels
/// and commands, as `ACL SETUSER` takes them. `lockmacro acl 'order:*'` prints the same.
///
/// ```
/// use lockmacro_runtime::inspect::{Use, rights};
///
/// let rights = rights("order:*", &[Use::Wait])?;
/// assert!(rights.starts_with("resetchannels resetkeys ~order:* ~lm1:w?:{order:*} "));
/// # Ok::<(), lockmacro_runtime::LockError>(())
/// ```
///
/// # Errors
/// [`LockError::InvalidKey`] for a pattern that `ACL SETUSER` does not accept (an empty one, or one
/// with blanks or control characters), and for the engine's own keys, `lm1:`.
pub fn rights(pattern: &str, uses: &[Use]) -> Result<String, LockError> {
    LockKey::from(pattern).check()?;
    if pattern.contains(is_refused) {
        let detail = "an ACL rule cannot have blanks or control characters: write `?` for each";
        return Err(LockError::InvalidKey { detail: detail.to_owned() });
    }
    Ok(rules(pattern, uses).join(" "))
}

/// The keys, channels and commands of a user, in the form that `ACL SETUSER` takes.
fn rules(pattern: &str, uses: &[Use]) -> Vec<String> {
    let has = |one: Use| uses.contains(&one);
    // A server refuses to add a channel or a key to all of them, which a user may have already.
    let mut rights = vec!["resetchannels".to_owned(), "resetkeys".to_owned()];
    rights.extend(keys(pattern));
    let mut called: Vec<_> = scripts::called(pattern == EVERY_KEY).collect();
    #[cfg(feature = "defer")]
    if has(Use::Defer) {
        use crate::defer::queue::redis::{requests::CALLS, scripts::ALL};

        if pattern != EVERY_KEY {
            rights.extend(keys(&[CALLS, "*"].concat()));
        }
        called.extend(ALL);
    }
    if has(Use::Inspect) {
        called.extend(inspect::ALL);
    }
    let receives = has(Use::Wait) || has(Use::Defer);
    if receives {
        rights.push("&lm1:*".to_owned());
    }
    let more: [(bool, &[&str]); 6] = [
        (receives, &OF_WAITERS[usize::from(has(Use::Cluster))]),
        (has(Use::Inspect), &["scan"]),
        (has(Use::Cluster), &["cluster|slots", "asking"]),
        (has(Use::Database), &["select"]),
        (has(Use::Redlock), &["info"]),
        (has(Use::ReplicaAcks), &["wait"]),
    ];
    let of_scripts = needed_by(called);
    let of_scripts = of_scripts.iter().map(String::as_str).filter(|name| !COMMANDS.contains(name));
    let more = more.into_iter().filter(|(is_used, _)| *is_used).flat_map(|(_, names)| names);
    let commands = COMMANDS.into_iter().chain(of_scripts).chain(more.copied());
    rights.extend(commands.map(|name| format!("+{name}")));
    rights
}

/// The patterns of all keys that match a pattern, and of their companion keys.
pub(crate) fn keys(pattern: &str) -> Vec<String> {
    let companions = if pattern == EVERY_KEY { Vec::new() } else { companions(pattern) };
    iter::once(format!("~{pattern}")).chain(companions).collect()
}

/// Whether a rule cannot have the character.
pub(crate) fn is_refused(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

/// The pattern that matches a key, and others only where it has what a rule cannot have.
pub(crate) fn escaped(key: &str) -> String {
    let mut pattern = String::with_capacity(key.len());
    for c in key.chars() {
        if is_refused(c) {
            // A wildcard is for a byte.
            pattern.extend(iter::repeat_n('?', c.len_utf8()));
            continue;
        }
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The patterns of the companion keys of all keys that match a pattern, one for each form of
/// [`write_companion`].
///
/// [`write_companion`]: crate::value::companion::write_companion
fn companions(pattern: &str) -> Vec<String> {
    let tagged = format!("~lm1:t?:{pattern}");
    if is_tagged(pattern) {
        return vec![tagged];
    }
    vec![format!("~lm1:w?:{{{pattern}}}"), tagged, format!("~lm1:x?:{{*}}:{pattern}")]
}

/// Whether all keys that match have a hash tag: it begins before the first wildcard.
fn is_tagged(pattern: &str) -> bool {
    let literal = pattern.split(['*', '?', '[', '\\']).next().unwrap_or_default();
    let Some((_, tag)) = literal.split_once('{') else { return false };
    let is_begun = !tag.is_empty() && !tag.starts_with('}');
    is_begun && (tag.contains('}') || !pattern.contains(['[', '\\']) && pattern.contains('}'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::companion::write_companion;

    #[test]
    fn a_pattern_whose_keys_all_have_a_tag_is_known() {
        for pattern in ["{order:*}:audit", "{bank}:*", "a{b}*"] {
            assert!(is_tagged(pattern), "{pattern}");
        }
        for pattern in ["order:*", "order:{*}", "*{a}", "{}*", "{a*", "{a[}]*", "{a\\}*"] {
            assert!(!is_tagged(pattern), "{pattern}");
        }
    }

    #[test]
    fn every_form_of_companion_key_has_a_pattern() {
        for (key, nth) in [("order:7", 0), ("order:{7}", 1), ("order:7}", 2)] {
            let mut companion = String::new();
            write_companion(key, "q", |part| companion.push_str(part));
            let pattern = &companions("order:*")[nth];
            let start = pattern.split('?').next().unwrap_or_default();
            assert!(companion.starts_with(start.trim_start_matches('~')), "{companion} {pattern}");
        }
    }

    #[test]
    fn commands_are_found_in_scripts() {
        let commands: Vec<_> = scripts::RELEASE_MIGRATING.commands().collect();
        assert!(commands.contains(&"del".to_owned()), "{commands:?}");
    }
}
