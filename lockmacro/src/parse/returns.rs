//! Return types: those whose work starts later are refused.

use quote::{ToTokens as _, format_ident};
use syn::spanned::Spanned as _;
use syn::visit::Visit;
use syn::visit_mut::VisitMut;
use syn::{Error, GenericArgument, ParenthesizedGenericArguments, Path, PathArguments};
use syn::{Result, TraitBound, Type, TypeFnPtr};

use crate::messages;
use crate::parse::boxed::{named, type_argument};
use crate::parse::path::{is_owned, mentions};

/// Refuses types whose work continues after the function has returned, without the lock: traits
/// with names such as `TryStream`, boxes with names such as `BoxFuture`, and handles of tasks. The
/// macro cannot see what a type alias stands for.
pub(crate) fn check(output: &Type) -> Result<()> {
    struct Lazy(Option<Error>);
    impl Lazy {
        fn look_at(&mut self, path: &Path, is_trait: bool) {
            let Some(segment) = path.segments.last() else { return };
            let name = segment.ident.to_string();
            let is_box = name.starts_with("Box") || name.starts_with("LocalBox");
            let is_task = ["JoinHandle", "JoinSet", "AbortHandle"].contains(&&*name);
            let instead = [
                ("Future", messages::INSTEAD_OF_FUTURE),
                ("Stream", messages::INSTEAD_OF_STREAM),
                ("Iterator", messages::INSTEAD_OF_ITERATOR),
            ];
            let lazy = instead.iter().find(|(kind, _)| is_trait != is_box && name.ends_with(kind));
            let message = match lazy {
                Some((_, instead)) => messages::lazy(name, instead),
                None if is_task && !is_trait => messages::task(name),
                None => return,
            };
            self.0.get_or_insert(Error::new(segment.span(), message));
        }
    }
    impl<'ast> Visit<'ast> for Lazy {
        fn visit_trait_bound(&mut self, bound: &'ast TraitBound) {
            self.look_at(&bound.path, true);
            syn::visit::visit_trait_bound(self, bound);
        }
        fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
            self.look_at(&path.path, false);
            syn::visit::visit_type_path(self, path);
        }
        // The caller calls a returned function, and decides about its result.
        fn visit_parenthesized_generic_arguments(
            &mut self,
            _: &'ast ParenthesizedGenericArguments,
        ) {
        }
        fn visit_type_fn_ptr(&mut self, _: &'ast TypeFnPtr) {}
    }

    if let Type::Never(never) = output {
        return Err(Error::new(never.span(), messages::NEVER_RETURNS));
    }
    let mut lazy = Lazy(None);
    lazy.visit_type(output);
    lazy.0.map_or(Ok(()), Err)
}

/// The type of a function's errors: a value with an erased type in it is left out.
///
/// Input: `Result<Json<_>, E>`
///
/// Output: `Result<(), E>`
pub(crate) fn without_erased_value(output: &Type) -> Type {
    let mut output = output.clone();
    if let Type::Path(path) = &mut output
        && let Some(last) = path.path.segments.last_mut()
        && let PathArguments::AngleBracketed(arguments) = &mut last.arguments
        && let Some(GenericArgument::Type(value)) = arguments.args.first_mut()
        && mentions(value.to_token_stream(), &format_ident!("_"))
    {
        *value = syn::parse_quote_spanned!(value.span()=> ());
    }
    output
}

/// Whether a type is certainly no `Result`, under no name.
pub(crate) fn is_no_result(output: &Type) -> bool {
    match output {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last().is_some_and(|last| {
            let known = ["Option", "Vec", "Box", "Arc", "Poll"];
            is_owned(output) || known.iter().any(|name| last.ident == name)
        }),
        Type::Path(_) | Type::Macro(_) | Type::Verbatim(_) => false,
        Type::Group(group) => is_no_result(&group.elem),
        Type::Paren(paren) => is_no_result(&paren.elem),
        _ => true,
    }
}

/// Whether the return type has a value for "nothing": `()`, `Option<T>` or `Result<Option<T>, E>`.
pub(crate) fn says_nothing(output: &Type) -> bool {
    let is_option = |output: &Type| named(output, "Option").is_some();
    let value = || type_argument(named(output, "Result")?);
    matches!(output, Type::Tuple(tuple) if tuple.elems.is_empty())
        || is_option(output)
        || value().is_some_and(is_option)
}

/// Writes `_` for every `impl Trait`, which has no other name in a body.
pub(crate) fn erase_impl_trait(mut output: Type) -> Type {
    struct Eraser;
    impl VisitMut for Eraser {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::ImplTrait(_) = ty {
                *ty = syn::parse_quote_spanned!(ty.span()=> _);
            } else {
                syn::visit_mut::visit_type_mut(self, ty);
            }
        }
    }
    Eraser.visit_type_mut(&mut output);
    output
}
