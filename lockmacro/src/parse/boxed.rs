//! Functions that return a boxed async block, which `#[async_trait]` makes of `async fn`s.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{ParseStream, Parser as _};
use syn::token::Paren;
use syn::{
    Block, Error, GenericArgument, Local, Pat, Path, PathArguments, PathSegment, Result, Stmt,
    Token, Type, TypeParamBound, parenthesized,
};

use crate::messages;
use crate::parse::path::{is_path, mentions};

/// The tokens around the async block's braces.
pub(crate) struct Boxed {
    pin: Path,
    call: Paren,
    async_token: Token![async],
    move_token: Option<Token![move]>,
}

impl Boxed {
    /// Puts a block where the async block was.
    pub(crate) fn with_block(&self, block: Group) -> TokenStream {
        let Self { pin, call, async_token, move_token } = self;
        let mut tokens = pin.to_token_stream();
        call.surround(&mut tokens, |inner| {
            inner.extend(quote!(#async_token #move_token #block));
        });
        tokens
    }

    /// Input: `Box::pin(async move { … })`
    fn parse(input: ParseStream) -> Result<(Self, Group)> {
        let pin: Path = input.parse()?;
        let inner;
        let call = parenthesized!(inner in input);
        let async_token = inner.parse()?;
        let move_token = inner.parse()?;
        let block: Group = inner.parse()?;
        inner.parse::<Option<Token![,]>>()?;
        let names = pin.segments.iter().rev().map(|segment| &segment.ident);
        let is_pin = names.zip(["pin", "Box"]).filter(|(name, known)| name == known).count() == 2;
        if is_pin && block.delimiter() == Delimiter::Brace {
            Ok((Self { pin, call, async_token, move_token }, block))
        } else {
            Err(input.error(messages::INSTEAD_OF_BOXED))
        }
    }
}

/// Input: `Pin<Box<dyn Future<Output = T> + …>>` or `BoxFuture<'_, T>`
///
/// Output: `T`
pub(crate) fn output(output: &Type) -> Option<Type> {
    let segment = last_segment(output)?;
    if segment.ident == "BoxFuture" || segment.ident == "LocalBoxFuture" {
        return type_argument(segment).cloned();
    }
    let boxed = type_argument(named(output, "Pin")?)?;
    let Type::TraitObject(object) = type_argument(named(boxed, "Box")?)? else {
        return None;
    };
    object.bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return None;
        };
        let future = bound.path.segments.last().filter(|segment| segment.ident == "Future")?;
        arguments(future)?.find_map(|argument| match argument {
            GenericArgument::AssocType(output) if output.ident == "Output" => {
                Some(output.ty.clone())
            }
            _ => None,
        })
    })
}

/// Input: `Box::pin(async move { … })`
///
/// Output: the tokens around the braces, and the braces.
pub(crate) fn unbox(body: TokenStream, output: Span) -> Result<(Boxed, Group)> {
    let first = body.clone().into_iter().next();
    let is_end = |tree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ';');
    let has_statements = body.clone().into_iter().any(is_end);
    Boxed::parse.parse2(body).map_err(|_| match first {
        Some(first) if has_statements => Error::new(first.span(), messages::OUTSIDE),
        _ => Error::new(output, messages::lazy("Future", messages::INSTEAD_OF_BOXED)),
    })
}

/// Uses those second bindings of arguments for which `is_used`, so that the compiler does not warn
/// of an argument that only the attribute uses.
///
/// Input: `let id = id; …`, as `#[async_trait]` begins a body
///
/// Output: `let id = id; let _ = &id; …`
pub(crate) fn with_uses(body: TokenStream, is_used: impl Fn(&Ident) -> bool) -> TokenStream {
    // A half-typed body stays as it is.
    let Ok(statements) = Block::parse_within.parse2(body.clone()) else { return body };
    let mut tokens = TokenStream::new();
    for (nth, statement) in statements.iter().enumerate() {
        statement.to_tokens(&mut tokens);
        let rest = || statements[nth + 1..].iter().map(ToTokens::to_token_stream).collect();
        if let Stmt::Local(Local { pat: Pat::Ident(binding), init: Some(init), .. }) = statement
            && is_path(&init.expr, &binding.ident.to_string())
            && is_used(&binding.ident)
            && !mentions(rest(), &binding.ident)
        {
            let name = &binding.ident;
            tokens.extend(quote_spanned!(name.span()=> let _ = &#name;));
        }
    }
    tokens
}

fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        Type::Group(group) => last_segment(&group.elem),
        Type::Paren(paren) => last_segment(&paren.elem),
        _ => None,
    }
}

pub(crate) fn named<'a>(ty: &'a Type, name: &str) -> Option<&'a PathSegment> {
    last_segment(ty).filter(|segment| segment.ident == name)
}

/// What stands in the angle brackets of a type.
pub(crate) fn arguments(segment: &PathSegment) -> Option<impl Iterator<Item = &GenericArgument>> {
    match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(arguments.args.iter()),
        _ => None,
    }
}

pub(crate) fn type_argument(segment: &PathSegment) -> Option<&Type> {
    arguments(segment)?.find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}
