//! Keys of locks, and several keys of one lock.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter;
use std::sync::Arc;

use crate::value::escaped::Escaped;
use crate::value::mode::Mode;

/// Longest key, in bytes.
const KEY_MAX: usize = 1024;
/// Most keys of one lock. A server runs no other command while its script checks them.
const KEYS_MAX: usize = 128;
/// Prefix of the engine's own keys.
const RESERVED: &str = "lm1:";

/// The key of a lock, byte for byte as it is in Redis.
///
/// Any client in any language that runs `SET key value NX PX ttl` on the same key excludes this
/// lock and is excluded by it. A key has 1 to 1,024 bytes and does not start with `lm1:`. Locking
/// any other key fails with [`LockError::InvalidKey`](crate::LockError::InvalidKey).
///
/// A manager with a [prefix](crate::LockManagerBuilder::key_prefix) adds it to the key when it
/// locks. The key of a guard, of an error, or from [`held`](crate::LockManager#method.held) has the
/// prefix already, and gets no second one when it is locked again.
///
/// ```
/// use lockmacro_runtime::LockKey;
///
/// let key: LockKey = LockKey::template("order:<id>").literal("order:").value(&42).into();
/// assert_eq!(key.to_string(), "order:42");
/// assert_eq!(LockKey::from("nightly-report").to_string(), "nightly-report");
/// ```
#[derive(Clone)]
pub struct LockKey {
    /// Shared, because each request of a `Lock` has its keys.
    text: Arc<str>,
    template: &'static str,
    extra: Option<Box<Extra>>,
}

/// The parts that most keys do not have. Boxed, to keep keys small.
#[derive(Debug, Clone, Default)]
struct Extra {
    /// Why the key could not be made. Reported when it is locked.
    fault: Option<String>,
    /// The template with the prefix. The key has the prefix, too.
    whole: Option<Box<str>>,
    mode: Mode,
}

impl LockKey {
    /// Returns the key as it is in Redis.
    ///
    /// ```
    /// # use lockmacro_runtime::LockKey;
    /// assert_eq!(LockKey::from("order:42").as_str(), "order:42");
    /// ```
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Makes the lock on this key shared: see [`Lock::shared`](crate::Lock::shared). For one of
    /// [several keys](crate::Lock::many).
    ///
    /// The mode is not a part of the key: keys are equal when their texts are equal.
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockError, LockKey, LockManager};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::isolated_memory();
    /// let book = |account: &str| {
    ///     Lock::many([LockKey::from("rates").shared(), account.into()]).manager(&locks)
    /// };
    /// let one = book("account:3").acquire().await?;
    /// let other = book("account:7").acquire().await?;
    /// # one.release().await?;
    /// # other.release().await }
    /// ```
    pub fn shared(self) -> Self {
        self.with_mode(Mode::Shared)
    }

    /// Lets several callers hold the lock on this key at once: see
    /// [`Lock::permits`](crate::Lock::permits). For one of [several keys](crate::Lock::many).
    ///
    /// ```
    /// # use lockmacro_runtime::{Lock, LockKey};
    /// let print = Lock::many([LockKey::from("printer").permits(3), "order:42".into()]);
    /// ```
    pub fn permits(self, permits: u32) -> Self {
        self.with_mode(Mode::of_permits(permits))
    }

    fn with_mode(mut self, mode: Mode) -> Self {
        self.set_mode(mode);
        self
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.extra.get_or_insert_default().mode = mode;
    }

    /// The mode in which the caller asks for the key.
    pub(crate) fn mode(&self) -> Mode {
        self.extra.as_ref().map_or(Mode::Exclusive, |extra| extra.mode)
    }

    /// The key in an error or a log. Escaped, as it may contain text from anywhere.
    pub(crate) fn shown(&self) -> Escaped<'_> {
        Escaped(&self.text)
    }

    /// The template of the key, the same for many keys; empty when there is none.
    pub(crate) fn made_of(&self) -> &str {
        self.whole().unwrap_or(self.template)
    }

    /// The same as an owned or static text.
    pub(crate) fn shared_template(&self) -> Cow<'static, str> {
        self.whole().map_or(self.template.into(), |template| template.to_owned().into())
    }

    fn whole(&self) -> Option<&str> {
        self.extra.as_ref()?.whole.as_deref()
    }

    /// A key that was read from a server; `None` for one of the engine's own.
    #[cfg(feature = "inspect")]
    pub(crate) fn found(text: String) -> Option<Self> {
        let extra = Extra { whole: Some("".into()), ..Extra::default() };
        (!text.starts_with(RESERVED)).then(|| Self { extra: Some(Box::new(extra)), ..text.into() })
    }

    /// The key with a manager's prefix, unless it has one already.
    ///
    /// # Errors
    /// [`InvalidKey`] if the key is invalid with or without the prefix.
    pub(crate) fn under(mut self, prefix: &str) -> Result<Self, InvalidKey> {
        self.check()?;
        if prefix.is_empty() || self.whole().is_some() {
            return Ok(self);
        }
        let template = match self.template {
            "" => "".into(),
            template => [prefix, template].concat().into(),
        };
        self.text = [prefix, &self.text].concat().into();
        self.extra.get_or_insert_default().whole = Some(template);
        self.check()?;
        Ok(self)
    }

    /// A key made of a template. `fault` is reported when the key is locked.
    pub(crate) fn from_template(
        text: String,
        template: &'static str,
        fault: Option<String>,
    ) -> Self {
        let extra = fault.map(|fault| Extra { fault: Some(fault), ..Extra::default() });
        Self { text: text.into(), template, extra: extra.map(Box::new) }
    }

    /// A placeholder for a missing key, which is always invalid.
    pub(crate) fn none() -> Self {
        let fault = "there is none: name one key or more".to_owned();
        Self::from_template(String::new(), "", Some(fault))
    }

    /// Checks that the key can be locked.
    pub(crate) fn check(&self) -> Result<(), InvalidKey> {
        let fault = self.extra.as_ref().and_then(|extra| extra.fault.as_ref());
        let detail = if let Some(fault) = fault {
            fault.clone()
        } else if self.text.is_empty() {
            "it is empty".to_owned()
        } else if self.text.len() > KEY_MAX {
            format!("it has {} bytes and {KEY_MAX} are allowed", self.text.len())
        } else if self.text.starts_with(RESERVED) {
            format!("it starts with `{RESERVED}`, which is reserved")
        } else {
            return Ok(());
        };
        Err(InvalidKey { detail })
    }
}

/// Why a key cannot be locked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidKey {
    pub(crate) detail: String,
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The keys of a lock in an error or a log: `account:1, account:7`.
pub(crate) struct Listed<'a>(pub(crate) &'a [LockKey]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(nth, key)| {
            let comma = if nth > 0 { ", " } else { "" };
            write!(f, "{comma}{}", key.shown())
        })
    }
}

impl PartialEq for LockKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for LockKey {}

/// Ordered by their bytes. Several keys are acquired in this order.
impl Ord for LockKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl PartialOrd for LockKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for LockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Debug for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockKey({:?})", self.text)
    }
}

impl From<String> for LockKey {
    fn from(text: String) -> Self {
        Self { text: text.into(), template: "", extra: None }
    }
}

impl From<&str> for LockKey {
    fn from(text: &str) -> Self {
        Self { text: text.into(), template: "", extra: None }
    }
}

impl From<&String> for LockKey {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<&LockKey> for LockKey {
    fn from(key: &LockKey) -> Self {
        key.clone()
    }
}

/// The first of a lock's keys; and all of them, sorted and without duplicates, if there are
/// several. A key that is given twice has the stricter of its modes.
pub(crate) fn in_order(
    first: LockKey,
    more: Vec<LockKey>,
) -> Result<(LockKey, Vec<LockKey>), InvalidKey> {
    if more.is_empty() {
        return Ok((first, more));
    }
    let mut keys: Vec<_> = iter::once(first.clone()).chain(more).collect();
    keys.sort();
    keys.dedup_by(|next, kept| {
        let is_same = next == kept;
        if is_same {
            kept.set_mode(kept.mode().stricter(next.mode()));
        }
        is_same
    });
    match keys.len() {
        1 => Ok((keys.remove(0), Vec::new())),
        2..=KEYS_MAX => Ok((first, keys)),
        count => {
            let detail = format!(
                "one lock has {count} keys and {KEYS_MAX} are allowed: split them into several \
                 locks"
            );
            Err(InvalidKey { detail })
        }
    }
}

/// The first of these keys, in their order, that is held with a permit while an exclusive one is
/// waited for.
pub(crate) fn permit_before_exclusive(keys: &[LockKey]) -> Option<&LockKey> {
    let permit = keys.iter().position(|key| matches!(key.mode(), Mode::Permits(_)))?;
    let waits = keys[permit..].iter().any(|key| key.mode().is_exclusive());
    waits.then(|| &keys[permit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: &str) -> LockKey {
        LockKey::template("order:<id>").literal("order:").value(id).into()
    }

    #[test]
    fn an_invalid_key_has_an_error_that_says_why() {
        let cases: [(LockKey, &str); 7] = [
            ("".into(), "it is empty"),
            ("x".repeat(1025).into(), "1025 bytes"),
            ("lm1:x".into(), "`lm1:`"),
            (order(""), "placeholder 1"),
            (
                LockKey::template("<a>-<b>").value("a").literal("-").value("").into(),
                "placeholder 2",
            ),
            (LockKey::template("<a><b>").value("a").value("b").into(), "without a literal"),
            (LockKey::template("<a>%").value("a").literal("%").into(), "`%`"),
        ];
        for (key, expected) in cases {
            let error = key.check().unwrap_err().detail;
            assert!(error.contains(expected), "{error}");
        }
        "x".repeat(1024).parse::<String>().map(LockKey::from).unwrap().check().unwrap();
    }

    #[test]
    fn a_prefix_is_added_to_the_key_and_its_template_once() {
        let whole = order("7").under("shop:").unwrap();
        assert_eq!((whole.as_str(), whole.made_of()), ("shop:order:7", "shop:order:<id>"));
        assert_eq!(whole.clone().under("shop:").unwrap(), whole);
        assert_eq!(LockKey::from("nightly").under("shop:").unwrap().made_of(), "");
        assert_eq!(order("7").under("").unwrap(), order("7"));
    }

    #[test]
    fn a_prefix_makes_no_key_valid_and_counts_in_its_length() {
        let refused = |key: &str, prefix| LockKey::from(key).under(prefix).unwrap_err().detail;
        assert!(refused("", "shop:").contains("empty"));
        assert!(refused("lm1:x", "shop:").contains("reserved"));
        assert!(refused("1:x", "lm").contains("reserved"));
        assert!(refused(&"x".repeat(1_020), "shop:").contains("1025 bytes"));
        LockKey::from("x".repeat(1_019)).under("shop:").unwrap();
    }

    #[test]
    fn a_permit_is_noticed_that_would_be_held_during_a_wait() {
        let a = LockKey::from("a");
        let b = LockKey::from("b");
        let is_noticed = |keys: &[LockKey]| permit_before_exclusive(keys).is_some();
        assert!(is_noticed(&[a.clone().permits(3), b.clone()]));
        assert!(!is_noticed(&[a.clone(), b.clone().permits(3)]));
        assert!(!is_noticed(&[a.clone().shared(), b.clone()]));
        assert!(!is_noticed(&[a.permits(3), b.permits(3)]));
    }
}
