//! Templates: `"order:<id>"` split into literals and values.

use proc_macro2::{Ident, Span, TokenStream};
use syn::visit_mut::{self, VisitMut};
use syn::{Error, Expr, ExprPath, LitStr, Member, Result};

use crate::literal;
use crate::spans::{respan, without_suggestions};

/// The longest key, in bytes, the same as in the runtime.
const KEY_MAX: usize = 1024;
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
    Value(Box<Value>),
}

/// `<order.id>`: an expression that starts at the function's arguments.
pub(crate) struct Value {
    pub(crate) expr: Expr,
    /// The names that it starts at: one, none for `<Self::NAME>`, several for `<hash(a, b)>`.
    roots: Vec<Ident>,
    /// The text between the angle brackets.
    pub(crate) text: String,
    /// Its description in messages: the compiler cannot underline a part of a literal.
    place: String,
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
            let (value, after) = Value::parse(rest, column, literal.span())?;
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

    /// The names that the placeholders in a text start at, without those that cannot be parsed.
    pub(crate) fn roots_in(text: &str) -> Vec<Ident> {
        let (mut roots, mut rest) = (Vec::new(), text);
        while let Some(open) = rest.find('<') {
            rest = &rest[open + 1..];
            if let Some(after) = rest.strip_prefix('<') {
                rest = after;
            } else if let Ok((value, after)) = Value::parse(rest, 0, Span::call_site()) {
                roots.extend(value.roots);
                rest = after;
            }
        }
        roots
    }

    /// The names that `<text>` would start at, if it were a placeholder.
    pub(crate) fn roots_of(text: &str) -> Vec<Ident> {
        match Value::parse(&format!("{text}>"), 0, Span::call_site()) {
            Ok((value, "")) => value.roots,
            _ => Vec::new(),
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
                && let Some(mistake) = literal::printf(text)
            {
                return self.fault(mistake);
            }
        }
        let length = self.parts.iter().map(|part| match part {
            Part::Literal(text) => text.len(),
            Part::Value(_) => 1,
        });
        let length: usize = length.sum();
        if length > KEY_MAX {
            return self.fault(format!(
                "this key has {length} bytes or more and {KEY_MAX} are allowed: write a shorter one"
            ));
        }
        Ok(())
    }

    /// Checks that every value starts at one of `names`, and that no literal was meant as a value.
    pub(crate) fn check_names(&self, names: &[Ident]) -> Result<()> {
        for part in &self.parts {
            match part {
                Part::Value(value) => {
                    if let Some(root) = value.roots.iter().find(|root| !names.contains(root)) {
                        return self.fault(unknown_root(value, root, names));
                    }
                }
                Part::Literal(text) => {
                    if let Some(mistake) = literal::mistake(text, names) {
                        return self.fault(mistake);
                    }
                }
            }
        }
        Ok(())
    }

    fn fault<T>(&self, message: impl std::fmt::Display) -> Result<T> {
        Err(Error::new(self.literal.span(), message))
    }
}

impl Value {
    /// Parses the placeholder whose text starts after a `<`. Returns it and the text after its `>`.
    fn parse(text: &str, column: usize, span: Span) -> Result<(Self, &str)> {
        let ends = ends(text);
        let Some(&end) = ends.first().or(text.find('>').as_ref()) else {
            return Err(Error::new(
                span,
                format!(
                    "the `<` in column {column} is never closed: write `>`, or `<<` for a literal \
                     `<`"
                ),
            ));
        };
        let place = format!("`<{}>` in column {column}", &text[..end]);
        if text[..end].trim().is_empty() {
            return Err(Error::new(
                span,
                format!(
                    "{place} is empty: write an argument's name in it, or `<<` for a literal `<`"
                ),
            ));
        }
        // A `>` may also belong to the expression, as in `<id.into::<String>()>`.
        for end in ends {
            let Some(expr) = parse_expr(&text[..end], span) else {
                continue;
            };
            let Some(roots) = roots(&expr) else {
                break;
            };
            let place = format!("`<{}>` in column {column}", &text[..end]);
            let (text, rest) = (text[..end].trim().to_owned(), &text[end + 1..]);
            return Ok((Self { expr, roots, text, place }, rest));
        }
        Err(Error::new(
            span,
            format!(
                "{place} is no name, field, index or call: write one such as `<id>`, `<order.id>`, \
                 `<ids[0]>`, `<id.to_lowercase()>` or `<hash(id)>`, or `<<` for a literal `<`"
            ),
        ))
    }
}

/// The possible ends of a placeholder: each `>` outside brackets and quotes.
///
/// The search stops at text that is no expression: the compiler's lexer would print a second error
/// for text that it cannot read.
fn ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut open = Vec::new();
    let mut chars = text.char_indices().peekable();
    let mut before = ' ';
    while let Some((at, c)) = chars.next() {
        let word_before = std::mem::replace(&mut before, c);
        let word_before = word_before == '_' || word_before.is_alphanumeric();
        let next = chars.peek().map(|&(_, next)| next);
        match c {
            '>' if open.is_empty() => ends.push(at),
            '(' => open.push(')'),
            '[' => open.push(']'),
            ')' | ']' if open.pop() == Some(c) => {}
            '"' | '\'' if word_before => return ends,
            '"' => loop {
                match chars.next() {
                    Some((_, '"')) => break,
                    Some((_, '\\')) => _ = chars.next(),
                    Some(_) => {}
                    None => return ends,
                }
            },
            '\'' => {
                let escaped =
                    chars.next().is_some_and(|(_, c)| c == '\\') && chars.next().is_some();
                let closed = chars.next().is_some_and(|(_, c)| c == '\'');
                if !closed || (!escaped && next == Some('\'')) {
                    return ends;
                }
            }
            '/' if matches!(next, Some('/' | '*')) => return ends,
            '#' if matches!(next, Some('"' | '#')) => return ends,
            '_' | '.' | ',' | ':' | '&' | '*' | '+' | '-' | '/' | '%' | '!' | '?' | '=' | '|'
            | '#' | '<' | '>' | ' ' => {}
            _ if c.is_alphanumeric() => {}
            _ => return ends,
        }
    }
    ends
}

fn parse_expr(text: &str, span: Span) -> Option<Expr> {
    let tokens: TokenStream = text.parse().ok()?;
    let mut expr = syn::parse2(respan(tokens, span)).ok()?;
    without_suggestions(&mut expr);
    Some(expr)
}

/// The names that a chain of fields, indexes and calls starts at.
fn roots(expr: &Expr) -> Option<Vec<Ident>> {
    match expr {
        Expr::Path(path) if path.qself.is_none() => {
            let first = &path.path.segments.first()?.ident;
            match path.path.get_ident() {
                Some(name) => Some(vec![name.clone()]),
                None => (first == "Self").then(Vec::new),
            }
        }
        Expr::Field(field) if !matches!(&field.member, Member::Named(name) if name == "await") => {
            roots(&field.base)
        }
        Expr::Index(index) => roots(&index.expr),
        Expr::MethodCall(call) => roots(&call.receiver),
        Expr::Call(call) if matches!(&*call.func, Expr::Path(_)) => {
            let roots: Vec<_> = call.args.iter().map(argument_roots).collect::<Option<_>>()?;
            // A call without an argument of the function would give each call the same key.
            Some(roots.concat()).filter(|roots| !roots.is_empty())
        }
        _ => None,
    }
}

/// The names that an argument of a call starts at.
fn argument_roots(argument: &Expr) -> Option<Vec<Ident>> {
    match argument {
        Expr::Lit(_) => Some(Vec::new()),
        Expr::Reference(reference) => argument_roots(&reference.expr),
        other => roots(other),
    }
}

fn unknown_root(value: &Value, root: &Ident, names: &[Ident]) -> String {
    let place = &value.place;
    if root == "self" {
        return format!("{place}: this function has no `self`; write one of its arguments instead");
    }
    if names.is_empty() {
        return format!(
            "{place}: this function has no arguments; add `{root}` to them, or write `<<` for a \
             literal `<`"
        );
    }
    // `#[async_trait]` destructures an argument that is a pattern inside its async block.
    if names.iter().any(|name| name.to_string().starts_with("__arg")) {
        return format!(
            "{place}: under `#[async_trait]` an argument must have a name of its own to be used \
             here; write `arg: Type` and take it apart in the body"
        );
    }
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    format!(
        "{place}: `{root}` is no argument of this function, which has {}: write one of them",
        names.join(", ")
    )
}
