//! Templates of keys: how values are written into a key, so that different values never make the
//! same key.

use std::fmt;
use std::fmt::Write as _;

use percent_encoding::percent_encode_byte;

use crate::value::key::LockKey;

impl LockKey {
    /// Starts a key of literals and values, like `key = "order:<id>"` in the attribute.
    ///
    /// `template` is shown in messages and metrics. The key consists of what is added afterwards.
    pub fn template(template: &'static str) -> LockTemplate {
        LockTemplate {
            template,
            text: String::with_capacity(template.len() + 16),
            value: None,
            values: 0,
            fault: None,
        }
    }
}

/// A builder of keys: see [`LockKey::template`].
///
/// Values are written with [`Display`](fmt::Display). Characters that could be taken for structure
/// are percent-encoded: `%`, `:`, `{`, `}`, space, control characters, and the first character of
/// the literal that follows. So one template never makes the same key of different values, and
/// plain ids stay as they are.
///
/// These make the key invalid: an empty value, two values without a literal between them, and a
/// literal that starts with `%` after a value.
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
    /// Adds a text as it is.
    ///
    /// ```
    /// # use lockmacro_runtime::LockKey;
    /// let key: LockKey = LockKey::template("report").literal("report").into();
    /// assert_eq!(key.as_str(), "report");
    /// ```
    pub fn literal(mut self, literal: &str) -> Self {
        let Some(first) = literal.chars().next() else {
            return self;
        };
        if self.value.is_some() && first == '%' {
            // The value `x` with the literal `%3A` would look like the value `x:`.
            self.fail("has a `%` right after a value");
        }
        self.end_value(Some(first));
        self.text.push_str(literal);
        self
    }

    /// Adds a value, encoded.
    ///
    /// ```
    /// # use lockmacro_runtime::LockKey;
    /// let template = LockKey::template("<a>:<b>");
    /// let key: LockKey = template.value(&"1:2").literal(":").value(&3).into();
    /// assert_eq!(key.as_str(), "1%3A2:3");
    /// ```
    pub fn value(self, value: &(impl fmt::Display + ?Sized)) -> Self {
        self.displayed(&value)
    }

    /// Not generic, so that a program contains it once.
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
                    self.text.extend(c.encode_utf8(&mut [0; 4]).bytes().map(percent_encode_byte));
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
        Self::from_template(template.text, template.template, template.fault)
    }
}

fn is_structure(c: char, next: Option<char>) -> bool {
    matches!(c, '%' | ':' | '{' | '}' | ' ') || c.is_control() || Some(c) == next
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
    fn structural_characters_are_encoded() {
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

    /// Texts of characters that are likely to collide, and of any others.
    fn text(min: usize) -> impl Strategy<Value = String> {
        let c = prop_oneof![
            6 => proptest::sample::select("%:{} -253Aa单".chars().collect::<Vec<_>>()),
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
                prop_assert_eq!(key.check(), Ok(()));
                if let Some(earlier) = seen.insert(key.as_str().into(), values.clone()) {
                    prop_assert_eq!(earlier, values);
                }
            }
        }
    }
}
