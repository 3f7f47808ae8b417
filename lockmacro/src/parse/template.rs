//! Templates: `"order:<id>"` split into literals and values.

use proc_macro2::Ident;
use syn::visit_mut::{self, VisitMut};
use syn::{Error, Expr, ExprPath, LitStr, Result};

use crate::fix::literal;
use crate::parse::placeholder::{Placeholder, roots_in};

/// The longest key, in bytes, the same as in the runtime.
const KEY_MAX: usize = 1024;
/// The longest note, in bytes, the same as in the runtime.
const NOTE_MAX: usize = 64;
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
    pub(crate) fn parse(literal: LitStr) -> Result<Self> {
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
            let (value, after) = Placeholder::parse(rest, column, literal.span())?;
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

    /// Binds each name to the function's argument, also where the string and the function come from
    /// different sides of a `macro_rules!`: nobody expects hygiene inside a string.
    pub(crate) fn bind(&mut self, names: &[Ident]) {
        struct Binder<'a>(&'a [Ident]);
        impl VisitMut for Binder<'_> {
            fn visit_expr_path_mut(&mut self, path: &mut ExprPath) {
                if let Some(name) = path.path.get_ident()
                    && let Some(argument) = self.0.iter().find(|argument| *argument == name)
                    && let Some(segment) = path.path.segments.first_mut()
                {
                    let there = segment.ident.span().resolved_at(argument.span());
                    segment.ident.set_span(there);
                }
                visit_mut::visit_expr_path_mut(self, path);
            }
        }
        for part in &mut self.parts {
            if let Part::Value(value) = part {
                Binder(names).visit_expr_mut(&mut value.expr);
            }
        }
    }

    /// Checks that different values never make the same key.
    pub(crate) fn check_key(&self) -> Result<()> {
        let text = self.literal.value();
        if text.trim().is_empty() {
            return self.fault("the key is empty: write one such as \"order:<id>\"");
        }
        if text.trim() != text {
            return self.fault(format!(
                "the key starts or ends with a blank, which is a part of it: write {:?}",
                text.trim()
            ));
        }
        if let Some(Part::Literal(text)) = self.parts.first()
            && text.starts_with(RESERVED)
        {
            return self.fault(format!(
                "keys that start with `{RESERVED}` are reserved: start it with a word of your own"
            ));
        }
        for pair in self.parts.windows(2) {
            match pair {
                [Part::Value(one), Part::Value(other)] => {
                    return self.fault(format!(
                        "{} touches the placeholder before it, so that different values could give \
                         the same key: write a separator between them, as in \"<{}>:<{}>\"",
                        other.place, one.text, other.text
                    ));
                }
                [Part::Value(value), Part::Literal(text)] if text.starts_with('%') => {
                    return self.fault(format!(
                        "a `%` right after {} could be taken for a part of the value: \
                         write another character between them, such as `:`",
                        value.place
                    ));
                }
                _ => {}
            }
        }
        for part in &self.parts {
            if let Part::Literal(text) = part
                && let Some(mistake) = literal::numbered(text)
            {
                return self.fault(mistake + &self.or_itself());
            }
        }
        let length = self.shortest();
        if length > KEY_MAX {
            return self.fault(format!(
                "this key has {length} bytes or more and {KEY_MAX} are allowed: write a shorter one"
            ));
        }
        Ok(())
    }

    /// Checks that not every call has a note that is cut.
    pub(crate) fn check_note(&self) -> Result<()> {
        let length = self.shortest();
        if length > NOTE_MAX {
            return self.fault(format!(
                "this note has {length} bytes or more, and {NOTE_MAX} are kept: write a shorter one"
            ));
        }
        Ok(())
    }

    /// The length with the shortest values, in bytes.
    fn shortest(&self) -> usize {
        let length = self.parts.iter().map(|part| match part {
            Part::Literal(text) => text.len(),
            Part::Value(_) => 1,
        });
        length.sum()
    }

    /// The expression that makes the same text: `format!("order:{id}")` for `order:<id>`.
    pub(crate) fn formatted(&self) -> String {
        let mut format = String::new();
        let mut values = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => format.push_str(&text.replace('{', "{{").replace('}', "}}")),
                Part::Value(value) if is_name(&value.expr) => {
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

    /// Checks that what calls have in common is made of their arguments.
    pub(crate) fn check_same(&self, names: &[Ident]) -> Result<()> {
        self.check_names(names, false)?;
        if self.as_plain().is_some() {
            return self.fault(
                "without a placeholder this is the same in all calls, and refuses none: write \
                 what a repeated call has in common with the first one, as in `same = \"<amount>\"`",
            );
        }
        Ok(())
    }

    /// Checks that every value starts at one of `names`, and that no literal was meant as a value.
    /// Only a key may be an expression.
    pub(crate) fn check_names(&self, names: &[Ident], is_key: bool) -> Result<()> {
        for part in &self.parts {
            match part {
                Part::Value(value) => {
                    if let Some(root) = value.roots.iter().find(|root| !names.contains(root)) {
                        let instead = if is_key {
                            format!("`{}` in place of the text", self.formatted())
                        } else {
                            "its text in place of it".to_owned()
                        };
                        return self.fault(value.unknown_root(root, names, &instead));
                    }
                }
                Part::Literal(text) => {
                    let is_whole_key = is_key && self.parts.len() == 1;
                    if let Some(mistake) = literal::mistake(text, names, is_whole_key) {
                        let or_itself = if is_key { self.or_itself() } else { String::new() };
                        return self.fault(mistake + &or_itself);
                    }
                }
            }
        }
        Ok(())
    }

    /// The mend for a key whose literal text is meant as it is.
    fn or_itself(&self) -> String {
        let itself = match self.as_plain() {
            // An expression has no placeholders either.
            Some(text) if !roots_in(text).is_empty() => return String::new(),
            Some(text) => format!("String::from({text:?})"),
            None => self.formatted(),
        };
        format!(", or `{itself}` for the text itself")
    }

    fn fault<T>(&self, message: impl std::fmt::Display) -> Result<T> {
        Err(Error::new(self.literal.span(), message))
    }
}

/// Whether a format may have the expression in its braces.
fn is_name(expr: &Expr) -> bool {
    matches!(expr, Expr::Path(path) if path.path.get_ident().is_some())
}
