//! The value of a lock key: `label/random`, made anew for every acquisition.

use std::fmt;
use std::fmt::Write as _;

use crate::error::{LockError, Unavailability};

/// Longest label, in bytes, with the name of the lock in it.
const LABEL_MAX: usize = 128;
/// Hexadecimal digits of the 128 random bits.
const RANDOM_DIGITS: usize = 32;

/// One acquisition's token. The label may be shown to anybody; the random part is what makes the
/// lock its holder's own, so it is neither displayed nor debugged.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// Makes a token for `label`, or fails when the system gives no random bits.
    pub(crate) fn new(label: &str) -> Result<Self, LockError> {
        let mut random = [0; RANDOM_DIGITS / 2];
        getrandom::fill(&mut random).map_err(|error| LockError::Unavailable {
            reason: Unavailability::Local,
            detail: error.to_string(),
        })?;
        let mut text = String::with_capacity(label.len() + 1 + RANDOM_DIGITS);
        text.push_str(label);
        // Writing to a string cannot fail.
        let _ = write!(text, "/{:032x}", u128::from_be_bytes(random));
        Ok(Self(text))
    }

    /// What stays of a token that holds a lock for nobody any more: its label.
    pub(crate) fn spent(&self) -> Self {
        let label = self.0.rsplit_once('/').map_or("", |(label, _)| label);
        Self(format!("{label}/{:032x}", 0))
    }

    /// The whole token, for the server alone.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", label_of(self.0.as_bytes()).unwrap_or_default())
    }
}

/// The label of a token found on a server; `None` for a value of another make, which may be a
/// secret as a whole.
pub(crate) fn label_of(stored: &[u8]) -> Option<String> {
    let (label, random) = std::str::from_utf8(stored).ok()?.rsplit_once('/')?;
    let ours = random.len() == RANDOM_DIGITS
        && random.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    ours.then(|| label.to_owned())
}

/// Joins a manager's label and a lock's name into what a token starts with: one line, at most
/// 128 bytes, readable in `redis-cli GET`.
pub(crate) fn label(manager: &str, lock: &str) -> String {
    let parts = [manager, if lock.is_empty() { "" } else { ":" }, lock];
    let mut label = String::with_capacity(parts.iter().map(|part| part.len()).sum());
    for c in parts.iter().flat_map(|part| part.chars()) {
        let c = if c.is_control() || c.is_whitespace() { '-' } else { c };
        if label.len() + c.len_utf8() > LABEL_MAX {
            break;
        }
        label.push(c);
    }
    label
}

/// `host:pid`, the label of a manager that was given none.
pub(crate) fn default_label() -> String {
    let name = rustix::system::uname();
    let host = name.nodename().to_string_lossy();
    format!("{host}:{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_shows_its_label_and_hides_the_rest() {
        let token = Token::new("web-3:4711:audit_order").unwrap();
        let random = &token.expose()["web-3:4711:audit_order/".len()..];
        assert_eq!(random.len(), RANDOM_DIGITS);
        assert_eq!(format!("{token:?}"), "Token(web-3:4711:audit_order)");
        assert_eq!(label_of(token.expose().as_bytes()).as_deref(), Some("web-3:4711:audit_order"));
    }

    #[test]
    fn tokens_of_one_label_differ() {
        assert_ne!(Token::new("a").unwrap(), Token::new("a").unwrap());
    }

    #[test]
    fn a_foreign_value_has_no_label() {
        for foreign in ["", "a3f1", "web/1", "web/0123456789ABCDEF0123456789ABCDEF"] {
            assert_eq!(label_of(foreign.as_bytes()), None, "{foreign}");
        }
        assert_eq!(label_of(b"\xff/0123456789abcdef0123456789abcdef"), None);
    }

    #[test]
    fn a_label_is_one_short_line() {
        assert_eq!(label("web 3\n", "audit\torder"), "web-3-:audit-order");
        assert_eq!(label("web", ""), "web");
        assert!(label(&"订".repeat(100), "f").len() <= LABEL_MAX);
    }
}
