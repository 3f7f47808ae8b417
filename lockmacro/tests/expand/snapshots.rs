//! Samples of what is written, and what it expands to.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::visit_mut::VisitMut;
use syn::{Attribute, File, ImplItem, ImplItemFn, Item, ItemImpl};

/// `name.rs` expands to `name.expanded.rs`.
const SAMPLES: [&str; 18] = [
    "audit_order",
    "sync",
    "skip",
    "fallback",
    "method",
    "async_trait",
    "message",
    "key_expression",
    "lease",
    "guard_and_fence",
    "recovery",
    "sharing",
    "skip_with_a_fence",
    "wait",
    "several_keys",
    "keys_of_an_iterator",
    "defer",
    "reuse",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expand")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Does to the functions of a file what the compiler does.
struct Expander;

impl Expander {
    /// Gives `item` to the attribute, if it has it, with the attributes that are left.
    fn expand(
        attrs: &[Attribute],
        item: impl FnOnce(Vec<Attribute>) -> TokenStream,
    ) -> Option<TokenStream> {
        let at = attrs.iter().position(|attr| attr.path().is_ident("distributed_lock"))?;
        let mut attrs = attrs.to_vec();
        let args = attrs.remove(at).meta.require_list().unwrap().tokens.clone();
        Some(crate::print::expand::attribute(args, item(attrs)))
    }
}

impl VisitMut for Expander {
    fn visit_file_mut(&mut self, file: &mut File) {
        let items = file.items.drain(..).flat_map(|item| match &item {
            Item::Fn(function) => {
                let with = |attrs| syn::ItemFn { attrs, ..function.clone() }.into_token_stream();
                let expanded = Self::expand(&function.attrs, with);
                expanded.map_or(vec![item], |items| syn::parse2::<File>(items).unwrap().items)
            }
            _ => vec![item],
        });
        file.items = items.collect();
        syn::visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_impl_mut(&mut self, block: &mut ItemImpl) {
        let items = block.items.drain(..).flat_map(|item| match &item {
            ImplItem::Fn(function) => {
                let with = |attrs| ImplItemFn { attrs, ..function.clone() }.into_token_stream();
                let expanded = Self::expand(&function.attrs, with);
                expanded.map_or(vec![item], |items| {
                    syn::parse2::<ItemImpl>(quote!(impl Both { #items })).unwrap().items
                })
            }
            _ => vec![item],
        });
        block.items = items.collect();
    }
}

#[test]
fn expansions_are_as_shown() {
    for name in SAMPLES {
        let input = read(&folder().join(format!("{name}.rs")));
        let mut file = syn::parse_file(&input).unwrap();
        Expander.visit_file_mut(&mut file);
        let expanded = prettyplease::unparse(&file);
        let path = folder().join(format!("{name}.expanded.rs"));
        if std::env::var_os("BLESS").is_some() {
            fs::write(&path, &expanded).unwrap();
        }
        assert_eq!(expanded, read(&path), "the expansion of {name} has changed");
    }
}

#[test]
fn a_body_of_five_lines_expands_to_a_screenful() {
    let input = read(&folder().join("audit_order.rs"));
    let body = input.lines().filter(|line| line.starts_with("    ")).count();
    assert_eq!(body, 5, "the sample's body is to have five lines");
    let expanded = read(&folder().join("audit_order.expanded.rs"));
    assert!(expanded.lines().count() <= 25, "{} lines", expanded.lines().count());
}

#[test]
fn the_guide_shows_this_expansion() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/internals/expansion.md");
    let page = fs::read_to_string(page).unwrap_or_default();
    for name in ["audit_order.rs", "audit_order.expanded.rs"] {
        let text = read(&folder().join(name));
        assert!(
            page.contains(text.trim_end()),
            "docs/internals/expansion.md does not have the text of \
             lockmacro/tests/expand/{name}, which is:\n\n{text}"
        );
    }
}
