//! Text in an expression, where nothing fills in placeholders: every call would have the same key.

use std::mem;

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Lit, LitStr, Result, Token};

use crate::messages;
use crate::parse::placeholder::roots_in;
use crate::parse::template::Template;

/// The methods and functions whose texts have placeholders that are meant as they are.
const MEANT: [&str; 3] = ["template", "replace", "replacen"];

/// Refuses `<id>` in the texts of an expression.
///
/// `are_meant`: these texts are the template of a `LockKey`, or what a `replace` looks for.
pub(crate) fn check(tokens: TokenStream, are_meant: bool) -> Result<()> {
    let mut before = [String::new(), String::new()];
    for tree in tokens {
        let [sign, name] = &before;
        match &tree {
            TokenTree::Group(group) => {
                if name == "!" {
                    check_text(&joined(sign, group.stream()), group.span())?;
                }
                let is_meant = match group.delimiter() {
                    // What a `macro_rules!` was given.
                    Delimiter::None => are_meant,
                    Delimiter::Parenthesis => {
                        [".", ":"].contains(&&**sign) && MEANT.contains(&&**name)
                    }
                    Delimiter::Brace | Delimiter::Bracket => false,
                };
                check(group.stream(), is_meant)?;
            }
            TokenTree::Literal(literal) if !are_meant => {
                if let Lit::Str(text) = Lit::new(literal.clone()) {
                    check_text(&text.value(), text.span())?;
                }
            }
            _ => {}
        }
        let word = match tree {
            TokenTree::Ident(_) | TokenTree::Punct(_) => tree.to_string(),
            TokenTree::Group(_) | TokenTree::Literal(_) => String::new(),
        };
        before = [mem::take(&mut before[1]), word];
    }
    Ok(())
}

/// The text of `concat!` and `stringify!`, as far as it is known before the compiler knows all.
fn joined(name: &str, arguments: TokenStream) -> String {
    match name {
        "stringify" => return arguments.to_string(),
        "concat" => {}
        _ => return String::new(),
    }
    let pieces = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(arguments);
    let piece = |piece| match piece {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.value(),
        Expr::Lit(other) => other.to_token_stream().to_string(),
        Expr::Macro(inner) => {
            joined(&inner.mac.path.to_token_stream().to_string(), inner.mac.tokens)
        }
        _ => "{}".to_owned(),
    };
    pieces.into_iter().flatten().map(piece).collect()
}

fn check_text(text: &str, place: Span) -> Result<()> {
    if roots_in(text).is_empty() {
        return Ok(());
    }
    let formatted = match Template::parse(LitStr::new(text, place), &[]) {
        // Braces may be those of a `format!` already.
        Ok(template) if !text.contains('{') => template.formatted(),
        _ => "format!(\"order:{id}\")".to_owned(),
    };
    Err(Error::new(place, messages::text_in_expression(format!("{text:?}"), formatted)))
}
