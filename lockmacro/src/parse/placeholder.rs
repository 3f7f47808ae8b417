//! Placeholders: the part of a template between `<` and `>`.

use proc_macro2::{Ident, Span, TokenTree};
use syn::visit_mut::VisitMut as _;
use syn::{Error, Expr, Member, Result};

use crate::messages;
use crate::parse::spans::{WithoutSuggestions, respan_with};

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
    ///
    /// `names` are those of the function's arguments.
    pub(crate) fn parse<'a>(
        text: &'a str,
        column: usize,
        span: Span,
        names: &[Ident],
    ) -> Result<(Self, &'a str)> {
        let fault = |message: String| Err(Error::new(span, message));
        let ends = ends(text);
        let Some(&end) = ends.first().or(text.find('>').as_ref()) else {
            return fault(messages::never_closed(column));
        };
        let place = |end: usize| format!("`<{}>` in column {column}", &text[..end]);
        // A `>` may also belong to the expression, as in `<id.into::<String>()>`.
        for end in ends {
            let Some(expr) = parse_expr(&text[..end], span, names) else { continue };
            let Some(roots) = roots(&expr) else { break };
            let place = place(end);
            let rest = &text[end + 1..];
            let text = text[..end].trim().to_owned();
            return Ok((Self { expr, roots, text, place }, rest));
        }
        fault(messages::no_placeholder(place(end)))
    }

    /// The message for a placeholder that starts at none of `names`, but at `root`. `formatted` has
    /// a constant in place of a key's text.
    pub(crate) fn unknown_root(
        &self,
        root: &Ident,
        names: &[Ident],
        formatted: Option<String>,
    ) -> String {
        let place = &self.place;
        let is_path = matches!(&self.expr, Expr::Path(path) if path.path.segments.len() > 1);
        let is_constant = is_path || is_constant(root, names);
        match formatted {
            Some(formatted) if is_constant => {
                messages::constant(place, format!("`{formatted}` in place of the text"))
            }
            None if is_constant => messages::constant(place, "its text in place of it"),
            _ if names.is_empty() => messages::no_arguments(place, root),
            // `#[async_trait]` destructures an argument that is a pattern inside its async block.
            _ if names.iter().any(|name| name.to_string().starts_with("__arg")) => {
                messages::no_name_of_its_own(place)
            }
            _ => {
                let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
                messages::no_such_argument(place, root, names.join(", "))
            }
        }
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
        } else if let Ok((value, after)) = Placeholder::parse(rest, 0, Span::call_site(), &[]) {
            roots.extend(value.roots);
            rest = after;
        }
    }
    roots
}

/// The names that `<text>` would start at, if it were a placeholder.
pub(crate) fn roots_of(text: &str) -> Vec<Ident> {
    match Placeholder::parse(&format!("{text}>"), 0, Span::call_site(), &[]) {
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
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let before = &text[..at];
        at += c.len_utf8();
        match c {
            '>' if open.is_empty() => ends.push(at - 1),
            '(' => open.push(')'),
            '[' => open.push(']'),
            ')' | ']' if open.pop() == Some(c) => {}
            '"' | '\'' if !before.ends_with(|c: char| c == '_' || c.is_alphanumeric()) => {
                match quoted(&text[at..], c) {
                    Some(length) => at += length,
                    None => return ends,
                }
            }
            '#' if before.ends_with('r') && text[at..].starts_with(char::is_alphabetic) => {}
            c if c.is_alphanumeric() || "_.,:&*+-%!?=|<> ".contains(c) => {}
            _ => return ends,
        }
    }
    ends
}

/// The length of a text or of one character up to and with its closing quote.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    let end = rest.find(|c| {
        let was_escaped = is_escaped;
        is_escaped = c == '\\' && !was_escaped;
        c == quote && !was_escaped
    })?;
    let is_one = match rest[..end].strip_prefix('\\') {
        Some(escaped) => escaped.chars().count() == 1,
        None => rest[..end].chars().count() == 1,
    };
    (quote == '"' || is_one).then_some(end + 1)
}

/// Names mean the function's arguments, also where the text and the function come from different
/// sides of a `macro_rules!`: nobody expects hygiene inside a string.
fn parse_expr(text: &str, span: Span, names: &[Ident]) -> Option<Expr> {
    let argument = |tree: &TokenTree| match tree {
        TokenTree::Ident(name) => names.iter().find(|argument| *argument == name),
        _ => None,
    };
    let span_of =
        |tree: &_| argument(tree).map_or(span, |argument| span.resolved_at(argument.span()));
    let mut expr = syn::parse2(respan_with(text.parse().ok()?, &span_of)).ok()?;
    WithoutSuggestions.visit_expr_mut(&mut expr);
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
