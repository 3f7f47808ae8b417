//! Keys, and how a template's values are written into them so that no two calls share one by
//! accident.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use crate::value::escaped::Escaped;

/// Longest key, in bytes.
const KEY_MAX: usize = 1024;
/// Keys that start so are the engine's own.
const RESERVED: &str = "lm1:";

/// The key of a lock: the name of what is locked, byte for byte as it is in Redis.
///
/// Any client in any language that runs `SET key value NX PX ttl` on the same key excludes this
/// lock and is excluded by it. A key is 1 to 1,024 bytes and does not start with `lm1:`; another
/// one gives [`LockError::InvalidKey`](crate::LockError::InvalidKey) when it is locked.
///
/// A manager with a [prefix](crate::LockManagerBuilder::key_prefix) puts it before the key when it
/// locks. The key of a guard, an error or [`look`](crate::LockManager#method.held) has the prefix
/// already, and gets no second one when it is locked again.
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
    text: Box<str>,
    template: &'static str,
    extra: Option<Box<Extra>>,
}

/// What most keys do not have.
#[derive(Debug, Clone)]
enum Extra {
    /// What went wrong while the key was made; told when it is locked.
    Fault(String),
    /// The key is whole, as it is on the server: no prefix is added any more. The template has the
    /// prefix, too.
    Whole { template: Box<str> },
}

impl LockKey {
    /// Starts a key that is made of literals and values, as `key = "order:<id>"` in the attribute.
    ///
    /// `template` is the text a person reads in messages; the key is made of what is added after.
    pub fn template(template: &'static str) -> LockTemplate {
        LockTemplate {
            template,
            text: String::with_capacity(template.len() + 16),
            value: None,
            values: 0,
            fault: None,
        }
    }

    /// The key as it is in Redis.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The key for people, in an error or a log: it is the caller's, and may come from anywhere.
    pub(crate) fn shown(&self) -> Escaped<'_> {
        Escaped(&self.text)
    }

    /// The template it was made of, which is the same for many keys; empty when there is none.
    pub(crate) fn made_of(&self) -> &str {
        match self.extra.as_deref() {
            Some(Extra::Whole { template }) => template,
            _ => self.template,
        }
    }

    /// The same to be kept.
    pub(crate) fn shared_template(&self) -> Cow<'static, str> {
        match self.extra.as_deref() {
            Some(Extra::Whole { template }) => Cow::Owned(template.to_string()),
            _ => Cow::Borrowed(self.template),
        }
    }

    /// A key as it was found on a server.
    #[cfg(feature = "look")]
    pub(crate) fn found(text: String) -> Self {
        Self { extra: Some(Box::new(Extra::Whole { template: "".into() })), ..text.into() }
    }

    /// The whole key: with a manager's prefix before it, unless it has one.
    ///
    /// # Errors
    /// [`InvalidKey`] for the key, or for what the prefix makes of it.
    pub(crate) fn under(self, prefix: &str) -> Result<Self, InvalidKey> {
        self.check()?;
        if prefix.is_empty() || self.extra.is_some() {
            return Ok(self);
        }
        let template = match self.template {
            "" => "".into(),
            template => [prefix, template].concat().into(),
        };
        let whole = Self {
            text: [prefix, &self.text].concat().into(),
            template: self.template,
            extra: Some(Box::new(Extra::Whole { template })),
        };
        whole.check()?;
        Ok(whole)
    }

    /// What stands for a key where there is none.
    pub(crate) fn none() -> Self {
        let fault = Extra::Fault("there is none: name one key or more".to_owned());
        Self { extra: Some(Box::new(fault)), ..Self::from("") }
    }

    /// Whether it is one of the engine's own.
    #[cfg(feature = "look")]
    pub(crate) fn is_reserved(&self) -> bool {
        self.text.starts_with(RESERVED)
    }

    /// Checks the key before its first use.
    pub(crate) fn check(&self) -> Result<(), InvalidKey> {
        let detail = if let Some(Extra::Fault(fault)) = self.extra.as_deref() {
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

/// Keys as people are told them: `account:1, account:7`.
pub(crate) struct Listed<'a> {
    pub(crate) first: &'a LockKey,
    pub(crate) more: &'a [LockKey],
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.shown().fmt(f)?;
        self.more.iter().try_for_each(|key| write!(f, ", {}", key.shown()))
    }
}

/// Keys are equal when their bytes are: that is what excludes.
impl PartialEq for LockKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for LockKey {}

/// In the order of their bytes, which is the one in which several keys are taken.
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

/// A value that can be written into a key: whatever is [`Display`](fmt::Display).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written into a key: it is not `Display`",
    label = "a placeholder has a value of type `{Self}`, which is not `Display`",
    note = "write a field or a method call in the placeholder whose value is text or a number, such as `<order.id>` or `<id.to_string()>`"
)]
pub trait KeyValue: fmt::Display {}

#[diagnostic::do_not_recommend]
impl<T: fmt::Display + ?Sized> KeyValue for T {}

/// A key in the making: see [`LockKey::template`].
///
/// Values are written with [`Display`](fmt::Display). What could be taken for structure is
/// percent-encoded: `%`, `:`, `{`, `}`, space, control characters, and the first character of the
/// literal that follows. So one template never makes the same key of different values, and plain
/// ids stay as they are. A value that prints nothing, two values without a literal between them,
/// and a literal that starts with `%` after a value make the key invalid.
#[derive(Debug, Clone)]
#[must_use = "a template does nothing until it becomes a `LockKey`"]
pub struct LockTemplate {
    template: &'static str,
    text: String,
    /// Where the last value starts, until the literal after it is known.
    value: Option<usize>,
    values: usize,
    fault: Option<String>,
}

impl LockTemplate {
    /// Adds text as it is.
    pub fn literal(mut self, literal: &str) -> Self {
        let Some(first) = literal.chars().next() else {
            return self;
        };
        if self.value.is_some() && first == '%' {
            // Were `%` left as it is, `x` before `%3A` could not be told from `x:` before it.
            self.fail("has a `%` right after a value");
        }
        self.end_value(Some(first));
        self.text.push_str(literal);
        self
    }

    /// Adds a value, encoded.
    pub fn value(self, value: &(impl KeyValue + ?Sized)) -> Self {
        self.displayed(&value)
    }

    /// Not generic, so that a program has it once.
    fn displayed(mut self, value: &dyn fmt::Display) -> Self {
        if self.value.is_some() {
            self.fail("has two values without a literal between them");
        }
        self.end_value(None);
        self.values += 1;
        let start = self.text.len();
        if write!(self.text, "{value}").is_err() {
            self.fail("has a value that cannot be displayed");
        } else if self.text.len() == start {
            let nth = self.values;
            self.fail(&format!("has nothing for placeholder {nth}: the value is empty"));
        }
        self.value = Some(start);
        self
    }

    fn fail(&mut self, why: &str) {
        let template = self.template;
        self.fault.get_or_insert_with(|| format!("`{template}` {why}"));
    }

    fn end_value(&mut self, next: Option<char>) {
        let Some(start) = self.value.take() else {
            return;
        };
        if self.text[start..].chars().any(|c| is_structure(c, next)) {
            let value = self.text.split_off(start);
            for c in value.chars() {
                if is_structure(c, next) {
                    encode(&mut self.text, c);
                } else {
                    self.text.push(c);
                }
            }
        }
    }
}

impl From<LockTemplate> for LockKey {
    fn from(mut template: LockTemplate) -> Self {
        template.end_value(None);
        Self {
            text: template.text.into(),
            template: template.template,
            extra: template.fault.map(Extra::Fault).map(Box::new),
        }
    }
}

fn is_structure(c: char, next: Option<char>) -> bool {
    matches!(c, '%' | ':' | '{' | '}' | ' ') || c.is_control() || Some(c) == next
}

fn encode(text: &mut String, c: char) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a string cannot fail.
        let _ = write!(text, "%{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn order(id: &str) -> LockKey {
        LockKey::template("order:<id>").literal("order:").value(id).into()
    }

    #[test]
    fn plain_ids_stay_as_they_are() {
        for id in ["42", "SO-2024_001.A", "订单7", "a/b@c", "550e8400-e29b-41d4-a716-446655440000"]
        {
            assert_eq!(order(id).as_str(), format!("order:{id}"));
        }
    }

    #[test]
    fn what_could_be_structure_is_encoded() {
        assert_eq!(order("a:b {c}%\n").as_str(), "order:a%3Ab%20%7Bc%7D%25%0A");
        let dashed: LockKey =
            LockKey::template("<a>单<b>").value("x单-y").literal("单").value("-单").into();
        assert_eq!(dashed.as_str(), "x%E5%8D%95-y单-单");
    }

    #[test]
    fn a_brace_in_a_value_does_not_move_a_hash_tag() {
        let key: LockKey = LockKey::template("{order:<id>}:audit")
            .literal("{order:")
            .value("}7")
            .literal("}:audit")
            .into();
        assert_eq!(key.as_str(), "{order:%7D7}:audit");
    }

    #[test]
    fn an_unusable_key_says_what_is_wrong() {
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
    fn a_prefix_stands_before_the_key_and_its_template_once() {
        let whole = order("7").under("shop:").unwrap();
        assert_eq!((whole.as_str(), whole.made_of()), ("shop:order:7", "shop:order:<id>"));
        assert_eq!(whole.clone().under("shop:").unwrap(), whole);
        assert_eq!(LockKey::from("nightly").under("shop:").unwrap().made_of(), "");
        assert_eq!(order("7").under("").unwrap(), order("7"));
    }

    #[test]
    fn a_prefix_makes_no_key_usable_and_counts_in_its_length() {
        let refused = |key: &str, prefix| LockKey::from(key).under(prefix).unwrap_err().detail;
        assert!(refused("", "shop:").contains("empty"));
        assert!(refused("lm1:x", "shop:").contains("reserved"));
        assert!(refused("1:x", "lm").contains("reserved"));
        assert!(refused(&"x".repeat(1_020), "shop:").contains("1025 bytes"));
        LockKey::from("x".repeat(1_019)).under("shop:").unwrap();
    }

    /// Characters that collide if anything does, and any other.
    fn text(min: usize) -> impl Strategy<Value = String> {
        let c = prop_oneof![
            6 => proptest::sample::select(vec!['%', ':', '{', '}', ' ', '-', '2', '5', '3', 'A', 'a', '单']),
            1 => any::<char>(),
        ];
        proptest::collection::vec(c, min..4).prop_map(String::from_iter)
    }

    fn literal() -> impl Strategy<Value = String> {
        text(1).prop_filter("refused after a value", |text| !text.starts_with('%'))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn different_values_never_make_the_same_key(
            first in text(0),
            literals in proptest::collection::vec(literal(), 0..3),
            last in prop_oneof![Just(String::new()), literal()],
            seeds in proptest::collection::vec(proptest::collection::vec(text(1), 3), 2..24),
        ) {
            let mut seen: HashMap<Box<str>, Vec<String>> = HashMap::new();
            for values in seeds {
                let values = values[..=literals.len()].to_vec();
                let mut template = LockKey::template("<random>").literal(&first);
                for (nth, value) in values.iter().enumerate() {
                    template = template.value(value);
                    template = template.literal(literals.get(nth).unwrap_or(&last));
                }
                let key = LockKey::from(template);
                prop_assert!(key.extra.is_none());
                if let Some(earlier) = seen.insert(key.text, values.clone()) {
                    prop_assert_eq!(earlier, values);
                }
            }
        }
    }
}
