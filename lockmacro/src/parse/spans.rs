//! Spans of tokens that come out of a string literal.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use syn::visit_mut::{self, VisitMut};
use syn::{ExprMethodCall, Member, Path};

/// Gives tokens the literal's span, so that errors show it and names mean what they mean there.
pub(crate) fn respan(tokens: TokenStream, span: Span) -> TokenStream {
    respan_with(tokens, &|_| span)
}

/// Gives tokens the span that `span_of` has for each.
pub(crate) fn respan_with(
    tokens: TokenStream,
    span_of: &dyn Fn(&TokenTree) -> Span,
) -> TokenStream {
    let respan_tree = |mut tree: TokenTree| {
        if let TokenTree::Group(group) = &mut tree {
            *group = Group::new(group.delimiter(), respan_with(group.stream(), span_of));
        }
        tree.set_span(span_of(&tree));
        tree
    };
    tokens.into_iter().map(respan_tree).collect()
}

/// Gives fields, methods and paths such as `T::NAME` a span of this macro, at the same place.
///
/// The compiler suggests no similar name for them then. It would suggest to write that name in
/// place of the whole literal.
pub(crate) struct WithoutSuggestions;

impl WithoutSuggestions {
    fn visit_name(name: &mut Ident) {
        // A keyword of this macro's edition, and a name in older ones.
        if name != "gen" {
            name.set_span(Span::mixed_site().located_at(name.span()));
        }
    }
}

impl VisitMut for WithoutSuggestions {
    fn visit_member_mut(&mut self, member: &mut Member) {
        if let Member::Named(name) = member {
            Self::visit_name(name);
        }
    }

    fn visit_expr_method_call_mut(&mut self, call: &mut ExprMethodCall) {
        Self::visit_name(&mut call.method);
        visit_mut::visit_expr_method_call_mut(self, call);
    }

    fn visit_path_mut(&mut self, path: &mut Path) {
        path.segments.iter_mut().skip(1).for_each(|next| Self::visit_name(&mut next.ident));
        visit_mut::visit_path_mut(self, path);
    }
}
