//! Placeholders: the part of a template between `<` and `>`.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{Error, Expr, Member, Result};

use crate::parse::spans::{respan, without_suggestions};

/// `<order.id>`: an expression that starts at the function's arguments.
pub(crate) struct Placeholder {
    pub(crate) expr: Expr,
    /// The names that it starts at: one, none for `<T::NAME>`, several for `<hash(a, b)>`.
    pub(crate) roots: Vec<Ident>,
    /// The text between the angle brackets.
    pub(crate) text: String,
    /// Its description in messages: the compiler cannot underline a part of a literal.
    pub(crate) place: String,
}

impl Placeholder {
    /// Parses the placeholder whose text starts after a `<`. Returns it and the text after its `>`.
    pub(crate) fn parse(text: &str, column: usize, span: Span) -> Result<(Self, &str)> {
        let fault = |message: String| Err(Error::new(span, message));
        let ends = ends(text);
        let Some(&end) = ends.first().or(text.find('>').as_ref()) else {
            return fault(format!(
                "the `<` in column {column} is never closed: write `>`, or `<<` for a literal `<`"
            ));
        };
        let place = format!("`<{}>` in column {column}", &text[..end]);
        if text[..end].trim().is_empty() {
            return fault(format!(
                "{place} is empty: write an argument's name in it, or `<<` for a literal `<`"
            ));
        }
        // A `>` may also belong to the expression, as in `<id.into::<String>()>`.
        for end in ends {
            let Some(expr) = parse_expr(&text[..end], span) else { continue };
            let Some(roots) = roots(&expr) else { break };
            let place = format!("`<{}>` in column {column}", &text[..end]);
            let rest = &text[end + 1..];
            let text = text[..end].trim().to_owned();
            return Ok((Self { expr, roots, text, place }, rest));
        }
        fault(format!(
            "{place} is no name, field, index or call: write one such as `<id>`, `<order.id>`, \
             `<ids[0]>`, `<id.to_lowercase()>` or `<hash(id)>`, or `<<` for a literal `<`"
        ))
    }

    /// The message for a placeholder that starts at none of `names`, but at `root`. `instead` mends
    /// a constant.
    pub(crate) fn unknown_root(&self, root: &Ident, names: &[Ident], instead: &str) -> String {
        let place = &self.place;
        let is_path = matches!(&self.expr, Expr::Path(path) if path.path.segments.len() > 1);
        if is_path || is_constant(root, names) {
            return format!(
                "{place} is no argument of this function: for a constant, write {instead}"
            );
        }
        let mend = if root == "self" {
            "this function has no `self`; write one of its arguments instead".to_owned()
        } else if names.is_empty() {
            format!(
                "this function has no arguments; add `{root}` to them, or write `<<` for a literal \
                 `<`"
            )
        } else if names.iter().any(|name| name.to_string().starts_with("__arg")) {
            // `#[async_trait]` destructures an argument that is a pattern inside its async block.
            "under `#[async_trait]` an argument must have a name of its own to be used here; write \
             `arg: Type` and take it apart in the body"
                .to_owned()
        } else {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            let names = names.join(", ");
            format!(
                "`{root}` is no argument of this function, which has {names}: write one of them"
            )
        };
        format!("{place}: {mend}")
    }
}

/// The names that the placeholders in a text start at, without those that cannot be parsed.
pub(crate) fn roots_in(text: &str) -> Vec<Ident> {
    let mut roots = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('<') {
        rest = &rest[open + 1..];
        if let Some(after) = rest.strip_prefix('<') {
            rest = after;
        } else if let Ok((value, after)) = Placeholder::parse(rest, 0, Span::call_site()) {
            roots.extend(value.roots);
            rest = after;
        }
    }
    roots
}

/// The names that `<text>` would start at, if it were a placeholder.
pub(crate) fn roots_of(text: &str) -> Vec<Ident> {
    match Placeholder::parse(&format!("{text}>"), 0, Span::call_site()) {
        Ok((value, "")) => value.roots,
        _ => Vec::new(),
    }
}

/// Whether a name is probably that of a constant, and not of one of `names` in capitals.
fn is_constant(name: &Ident, names: &[Ident]) -> bool {
    let text = name.to_string();
    !text.contains(char::is_lowercase)
        && text.contains(char::is_uppercase)
        && !names.iter().any(|name| name.to_string().to_uppercase() == text)
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
            let first = path.path.segments.first()?;
            let last = path.path.segments.last()?;
            let is_of_a_type = first.ident.to_string().starts_with(char::is_uppercase);
            match path.path.segments.len() {
                1 if !first.arguments.is_none() => None,
                2.. if is_of_a_type => Some(Vec::new()),
                // The constant of a module has a name that is no argument.
                _ => Some(vec![last.ident.clone()]),
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
