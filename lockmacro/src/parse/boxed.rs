//! Functions that return a boxed async block, which `#[async_trait]` makes of `async fn`s.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::{Error, GenericArgument, Path, PathArguments, PathSegment, Result, Type, TypeParamBound};

use crate::parse::path::mentions;

/// The tokens around the async block's braces.
#[derive(Clone)]
pub(crate) struct Boxed {
    pin: TokenStream,
    call: Group,
    before: TokenStream,
}

impl Boxed {
    /// Puts a block where the async block was.
    pub(crate) fn with_block(self, block: Group) -> TokenStream {
        let Self { pin, call, before } = self;
        let mut inner = Group::new(Delimiter::Parenthesis, quote!(#before #block));
        inner.set_span(call.span());
        quote!(#pin #inner)
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
    let mut trees: Vec<TokenTree> = body.into_iter().collect();
    let last = trees.pop();
    let pin: TokenStream = trees.iter().cloned().collect();
    let is_pin = |path: &Path| {
        let mut names = path.segments.iter().rev().map(|segment| &segment.ident);
        names.next().is_some_and(|name| name == "pin")
            && names.next().is_some_and(|name| name == "Box")
    };
    if let Some(TokenTree::Group(call)) = last
        && call.delimiter() == Delimiter::Parenthesis
        && let Some((before, block)) = async_block(call.stream())
    {
        if syn::parse2::<Path>(pin.clone()).is_ok_and(|path| is_pin(&path)) {
            return Ok((Boxed { pin, call, before }, block));
        }
        if let Some(first) = trees.first()
            && trees
                .iter()
                .any(|tree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ';'))
        {
            return Err(Error::new(
                first.span(),
                "this would run outside the lock: move it into the async block, or write an `async \
                 fn`",
            ));
        }
    }
    Err(Error::new(
        output,
        "the work of this future starts after the function has returned, when the lock would be \
         gone: write an `async fn`, or make `Box::pin(async move { .. })` the whole body",
    ))
}

/// Uses those second bindings of arguments for which `is_used`, so that the compiler does not warn
/// of an argument that only the attribute uses.
///
/// Input: `let id = id; …`, as `#[async_trait]` begins a body
///
/// Output: `let id = id; let _ = &id; …`
pub(crate) fn with_uses(body: TokenStream, is_used: impl Fn(&Ident) -> bool) -> TokenStream {
    let trees: Vec<TokenTree> = body.into_iter().collect();
    let mut tokens = TokenStream::new();
    for (nth, tree) in trees.iter().enumerate() {
        tokens.extend([tree.clone()]);
        let before = |back: usize| nth.checked_sub(back).map(|at| &trees[at]);
        let is = |back: usize, text: &str| before(back).is_some_and(|it| it.to_string() == text);
        let is_binding = is(0, ";") && is(2, "=") && (is(4, "let") || is(4, "mut") && is(5, "let"));
        if let (true, Some(TokenTree::Ident(name)), Some(TokenTree::Ident(of))) =
            (is_binding, before(3), before(1))
            && name == of
            && is_used(name)
            && !mentions(trees[nth..].iter().cloned().collect(), name)
        {
            tokens.extend(quote_spanned!(name.span()=> let _ = &#name;));
        }
    }
    tokens
}

/// Input: `async move { … }`
///
/// Output: `async move`, and the braces.
fn async_block(tokens: TokenStream) -> Option<(TokenStream, Group)> {
    let mut trees: Vec<TokenTree> = tokens.into_iter().collect();
    if matches!(trees.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == ',') {
        trees.pop();
    }
    let Some(TokenTree::Group(block)) = trees.pop() else {
        return None;
    };
    let words: Vec<_> = trees.iter().map(ToString::to_string).collect();
    let known = matches!(
        words.iter().map(String::as_str).collect::<Vec<_>>()[..],
        ["async"] | ["async", "move"]
    );
    (known && block.delimiter() == Delimiter::Brace).then(|| (trees.into_iter().collect(), block))
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
