//! The annotated function: its shape, its arguments and its body.
//!
//! The body stays a list of tokens, so that a half-typed one still expands and an editor keeps
//! working. The signature is read, and printed as it was written.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned as _;
use syn::visit::Visit;
use syn::visit_mut::VisitMut as _;
use syn::{
    Attribute, Error, Expr, FnArg, Item, Pat, PatIdent, ReceiverKind, Result, ReturnType,
    Signature, Token, Type, Visibility, braced,
};

use crate::messages;
use crate::parse::boxed::{self, Boxed};
use crate::parse::path::{Groups, is_owned, is_plain, mentions};
use crate::parse::returns;

pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) sig: Signature,
    /// Everything before the body.
    pub(crate) head: TokenStream,
    /// `#![…]` at the start of the body.
    pub(crate) inner_attrs: Vec<Attribute>,
    /// The block that runs under the lock.
    pub(crate) body: Group,
    pub(crate) shape: Shape,
    /// The body's return type.
    pub(crate) output: Type,
    /// The span for an error about the return type.
    pub(crate) output_span: Span,
    /// The span of the function's own braces.
    span: Span,
}

pub(crate) enum Shape {
    /// `async fn`
    Async,
    /// `fn`
    Blocking,
    /// `Box::pin(async move { … })` as the whole body of a `fn`, as `#[async_trait]` makes it.
    Boxed(Boxed),
}

impl Function {
    /// Whether the body is awaited, and so can be stopped.
    pub(crate) fn is_async(&self) -> bool {
        !matches!(self.shape, Shape::Blocking)
    }

    /// The names of the arguments: `self`, and the names that the arguments' patterns bind.
    pub(crate) fn names(&self) -> Vec<Ident> {
        let names = self.sig.inputs.iter().flat_map(|input| match input {
            FnArg::Receiver(receiver) => vec![Ident::from(receiver.self_token)],
            FnArg::Typed(typed) => bindings(&typed.pat).into_iter().map(|(name, _)| name).collect(),
        });
        names.collect()
    }

    /// The names that placeholders may start at: [`Self::names`] and const parameters.
    pub(crate) fn template_names(&self) -> Vec<Ident> {
        let constants = self.sig.generics.const_params().map(|constant| constant.ident.clone());
        self.names().into_iter().chain(constants).collect()
    }

    /// Whether this is an argument with a value that is certainly no text: a number, or `&u64`.
    pub(crate) fn is_number(&self, name: &Ident) -> bool {
        self.sig.inputs.iter().any(|input| match input {
            FnArg::Typed(typed) => {
                let is_it = matches!(&*typed.pat, Pat::Ident(pat) if pat.ident == *name);
                let mut ty = &*typed.ty;
                while let Type::Reference(reference) = ty {
                    ty = &reference.elem;
                }
                is_it && is_plain(ty)
            }
            FnArg::Receiver(_) => false,
        })
    }

    /// The names to call another function with that has the same arguments.
    pub(crate) fn call_arguments(&self, policy: &str) -> Result<Vec<Ident>> {
        let name = |input: &FnArg| match input {
            FnArg::Receiver(receiver) => Ok(Ident::from(receiver.self_token)),
            FnArg::Typed(typed) => match &*typed.pat {
                Pat::Ident(pat) if pat.by_ref.is_none() && pat.subpat.is_none() => {
                    Ok(pat.ident.clone())
                }
                pattern => Err(Error::new(pattern.span(), messages::pattern(policy))),
            },
        };
        self.sig.inputs.iter().map(name).collect()
    }

    /// The types of the arguments, for the type of a function with the same arguments. A type that
    /// may have a lifetime, also a hidden one, is `_`: the lifetime may differ for each call.
    pub(crate) fn argument_types(&self) -> Vec<TokenStream> {
        let types = self.sig.inputs.iter().map(|input| match input {
            FnArg::Typed(typed) if is_owned(&typed.ty) => typed.ty.to_token_stream(),
            other => quote_spanned!(other.span()=> _),
        });
        types.collect()
    }

    /// Moves whole arguments into the body, so that they are dropped before the lock is released:
    /// arguments of which the body uses a part, and arguments that the body does not use.
    ///
    /// Arguments with `is_taken` stay, because an expression may have moved them. `is_used` is true
    /// for arguments that are used outside of the body. An unused argument gets its own binding, so
    /// that the compiler warns of it as it does without a lock.
    ///
    /// Output: `let _ = &order; let note = note;`
    pub(crate) fn moved(
        &self,
        is_taken: impl Fn(&Ident) -> bool,
        is_used: impl Fn(&Ident) -> bool,
        site: Span,
    ) -> TokenStream {
        let mut tokens = TokenStream::new();
        for input in &self.sig.inputs {
            let (attributes, names) = match input {
                FnArg::Receiver(receiver) => {
                    let name = Ident::from(receiver.self_token);
                    match &receiver.kind {
                        ReceiverKind::Reference(..) => continue,
                        ReceiverKind::Typed(_, ty) if is_plain(ty) => continue,
                        _ => (&receiver.attrs, vec![(name, true)]),
                    }
                }
                FnArg::Typed(typed) if is_plain(&typed.ty) => continue,
                FnArg::Typed(typed) => (&typed.attrs, bindings(&typed.pat)),
            };
            let is = |word: &str| attributes.iter().any(|attr| attr.path().is_ident(word));
            if is("expect") {
                // The expected warning belongs to the argument, and not to a second binding.
                continue;
            }
            let is_allowed = is("allow");
            let cfgs: Vec<_> =
                attributes.iter().filter(|attr| attr.path().is_ident("cfg")).collect();
            for (name, is_mutable) in names.into_iter().filter(|(name, _)| !is_taken(name)) {
                let is_kept = is_mutable
                    || is_allowed
                    || matches!(self.shape, Shape::Boxed(_))
                    || mentions(self.body.stream(), &name)
                    || is_used(&name);
                tokens.extend(if is_kept {
                    quote_spanned!(site=> #(#cfgs)* let _ = &#name;)
                } else {
                    quote_spanned!(site=> #(#cfgs)* let #name = #name;)
                });
            }
        }
        tokens
    }

    /// The function with the body that acquires the lock.
    pub(crate) fn with_body(&self, locked: TokenStream) -> TokenStream {
        let inner = match &self.shape {
            Shape::Async | Shape::Blocking => locked,
            Shape::Boxed(boxed) => boxed.with_block(braces(locked, self.body.span())),
        };
        let head = &self.head;
        let attributes = &self.inner_attrs;
        let body = braces(quote!(#(#attributes)* #inner), self.span);
        quote!(#head #body)
    }
}

struct Names(Vec<(Ident, bool)>);

impl<'ast> Visit<'ast> for Names {
    fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
        self.0.push((pat.ident.clone(), pat.mutability.is_some()));
        syn::visit::visit_pat_ident(self, pat);
    }
}

/// The names that a pattern binds, and whether each of them is `mut`.
pub(crate) fn bindings(pattern: &Pat) -> Vec<(Ident, bool)> {
    let mut names = Names(Vec::new());
    names.visit_pat(pattern);
    names.0
}

/// The names that the patterns in an expression bind.
pub(crate) fn bound(expr: &Expr) -> Vec<Ident> {
    let mut names = Names(Vec::new());
    names.visit_expr(expr);
    names.0.into_iter().map(|(name, _)| name).collect()
}

/// `{ tokens }`
pub(crate) fn braces(tokens: TokenStream, span: Span) -> Group {
    let mut group = Group::new(Delimiter::Brace, tokens);
    group.set_span(span);
    group
}

impl Parse for Function {
    fn parse(input: ParseStream) -> Result<Self> {
        let all: TokenStream = input.fork().parse()?;
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        input.parse::<Option<Token![default]>>()?;
        let start = input.fork();
        let sig: Signature =
            input.parse().map_err(|error| not_a_function(&start).unwrap_or(error))?;
        if input.peek(Token![;]) {
            return Err(input.error(messages::NO_BODY));
        }
        check_qualifiers(&sig)?;
        let content;
        let span = braced!(content in input).span.join();
        let inner_attrs = content.call(Attribute::parse_inner)?;
        let statements = content.parse()?;
        let mut head: Vec<TokenTree> = all.into_iter().collect();
        head.pop();

        let mut output = match &sig.output {
            ReturnType::Type(_, output) => Type::clone(output),
            ReturnType::Default => syn::parse_quote_spanned!(sig.ident.span()=> ()),
        };
        Groups.visit_type_mut(&mut output);
        let (shape, body, output) = match (sig.asyncness, boxed::output(&output)) {
            (Some(_), _) => (Shape::Async, braces(statements, span), output),
            (None, None) => (Shape::Blocking, braces(statements, span), output),
            (None, Some(inner)) => {
                let (boxed, block) = boxed::unbox(statements, output.span())?;
                (Shape::Boxed(boxed), block, inner)
            }
        };
        returns::check(&output)?;
        let output_span = output.span();
        let output = returns::erase_impl_trait(output);
        let head = head.into_iter().collect();
        Ok(Self {
            attributes,
            visibility,
            sig,
            head,
            inner_attrs,
            body,
            shape,
            output,
            output_span,
            span,
        })
    }
}

/// The error for an item that is not a function.
fn not_a_function(input: ParseStream) -> Option<Error> {
    let kind: TokenTree = input.fork().parse().ok()?;
    input.parse::<Item>().ok()?;
    Some(Error::new(kind.span(), messages::no_function(kind)))
}

fn check_qualifiers(sig: &Signature) -> Result<()> {
    match (&sig.constness, &sig.abi) {
        (Some(constness), _) => Err(Error::new(constness.span(), messages::CONST)),
        (None, Some(abi)) => Err(Error::new(abi.span(), messages::EXTERN)),
        (None, None) => Ok(()),
    }
}
