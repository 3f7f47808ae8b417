//! Templates: `"order:<id>"` split into literals and values.

use proc_macro2::Ident;
use syn::{Error, Expr, LitStr, Result};

use crate::fix::literal;
use crate::messages;
use crate::parse::item::Function;
use crate::parse::placeholder::{Placeholder, roots_in};

/// The runtime's own keys start with this.
const RESERVED: &str = "lm1:";

/// A string literal with placeholders.
pub(crate) struct Template {
    pub(crate) literal: LitStr,
    pub(crate) parts: Vec<Part>,
}

pub(crate) enum Part {
    /// Text as it is, `<<` already read as `<`; never empty.
    Literal(String),
    Value(Box<Placeholder>),
}

impl Template {
    /// Reads a text whose placeholders are those of `function`, if it could be read itself.
    pub(crate) fn text(literal: LitStr, function: Option<&Function>) -> Result<Self> {
        Self::of(literal, function, &[], false)
    }

    /// Reads a key, which differs wherever its values differ. `bound` are names of an expression
    /// around it.
    pub(crate) fn key(
        literal: LitStr,
        function: Option<&Function>,
        bound: &[Ident],
    ) -> Result<Self> {
        let key = Self::of(literal, function, bound, true)?;
        key.check_key().map(|()| key)
    }

    fn of(
        literal: LitStr,
        function: Option<&Function>,
        bound: &[Ident],
        is_key: bool,
    ) -> Result<Self> {
        let Some(function) = function else { return Self::parse(literal, &[]) };
        let names = [&function.template_names(), bound].concat();
        let template = Self::parse(literal, &names)?;
        template.check_names(&names, is_key).map(|()| template)
    }

    /// Reads any text.
    pub(crate) fn parse(literal: LitStr, names: &[Ident]) -> Result<Self> {
        let text = literal.value();
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text.as_str();
        while let Some(open) = rest.find('<') {
            plain.push_str(&rest[..open]);
            rest = &rest[open + 1..];
            if let Some(after) = rest.strip_prefix('<') {
                plain.push('<');
                rest = after;
                continue;
            }
            let column = text[..text.len() - rest.len()].chars().count();
            let (value, after) = Placeholder::parse(rest, column, literal.span(), names)?;
            if !plain.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut plain)));
            }
            parts.push(Part::Value(Box::new(value)));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Literal(plain));
        }
        Ok(Self { literal, parts })
    }

    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.parts.iter().filter_map(|part| match part {
            Part::Literal(_) => None,
            Part::Value(value) => Some(&value.expr),
        })
    }

    /// The whole text when there is no placeholder in it.
    pub(crate) fn as_plain(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Checks that different values never make the same key.
    fn check_key(&self) -> Result<()> {
        let text = self.literal.value();
        if text.trim().is_empty() {
            return self.fault(messages::KEY_IS_EMPTY);
        }
        if text.trim() != text {
            return self.fault(messages::key_has_blanks(format!("{:?}", text.trim())));
        }
        if text.starts_with(RESERVED) {
            return self.fault(messages::key_is_reserved(RESERVED));
        }
        for pair in self.parts.windows(2) {
            match pair {
                [Part::Value(one), Part::Value(other)] => {
                    return self.fault(messages::adjacent(&other.place, &one.text, &other.text));
                }
                [Part::Value(value), Part::Literal(text)] if text.starts_with('%') => {
                    return self.fault(messages::percent(&value.place));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The expression that makes the same text: `format!("order:{id}")` for `order:<id>`.
    pub(crate) fn formatted(&self) -> String {
        let mut format = String::new();
        let mut values = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => format.push_str(&escaped(text)),
                Part::Value(value)
                    if value.text.chars().all(|c| c.is_alphanumeric() || c == '_') =>
                {
                    format.push_str(&format!("{{{}}}", value.text));
                }
                Part::Value(value) => {
                    format.push_str("{}");
                    values.push_str(&format!(", {}", value.text));
                }
            }
        }
        format!("format!({format:?}{values})")
    }

    /// Checks that every value starts at one of `names`, and that no literal was meant as a value.
    /// Only a key may be an expression.
    fn check_names(&self, names: &[Ident], is_key: bool) -> Result<()> {
        let is_whole_key = is_key && self.parts.len() == 1;
        for part in &self.parts {
            match part {
                Part::Value(value) => {
                    if let Some(root) = value.roots.iter().find(|root| !names.contains(root)) {
                        let formatted = is_key.then(|| self.formatted());
                        return self.fault(value.unknown_root(root, names, formatted));
                    }
                }
                Part::Literal(text) => {
                    let numbered = is_key.then(|| literal::numbered(text, is_whole_key)).flatten();
                    let mistake = || literal::mistake(text, names, is_whole_key);
                    if let Some(mistake) = numbered.or_else(mistake) {
                        let or_itself = if is_key { self.or_itself() } else { String::new() };
                        return self.fault(mistake + &or_itself);
                    }
                }
            }
        }
        Ok(())
    }

    /// The fix for a key whose literal text is meant as it is.
    fn or_itself(&self) -> String {
        match self.as_plain() {
            // An expression has no placeholders either.
            Some(text) if !roots_in(text).is_empty() => String::new(),
            Some(text) => messages::or_itself(format!("String::from({text:?})")),
            None => messages::or_itself(self.formatted()),
        }
    }

    fn fault<T>(&self, message: impl std::fmt::Display) -> Result<T> {
        Err(Error::new(self.literal.span(), message))
    }
}

/// Literal text as it is written in a format.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}
