//! The public items of the runtime, as text: what a change of them would break.

use std::collections::BTreeSet;
use std::path::Path;

use quote::ToTokens as _;
use syn::{Attribute, Fields, ImplItem, Item, Type, UseTree, Visibility};

use crate::code::{read, sources};

/// All exported items with their methods, fields, variants and traits, without docs and bodies, in
/// order. The suite `shapes` has what the compiler adds: which of them may be sent and shared.
pub fn public(root: &Path) -> String {
    let exported = exported(root);
    let mut items = Vec::new();
    for path in sources(root) {
        let file = syn::parse_file(&read(&path)).expect("Rust");
        items.extend(file.items.into_iter().filter_map(|item| shown(item, &exported)));
    }
    let mut texts: Vec<_> = items.into_iter().map(text).collect();
    texts.sort();
    texts.join("\n")
}

/// The names that the files re-export from private modules, or have in public ones.
fn exported(root: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in [
        "lib.rs",
        "defer/mod.rs",
        "inspect/mod.rs",
        "store/mod.rs",
        "testing.rs",
        "testing/conformance/mod.rs",
        "value/fence/mod.rs",
    ] {
        let file = syn::parse_file(&read(&root.join(path))).expect("Rust");
        for item in file.items {
            let (visibility, name) = match &item {
                Item::Use(item) if is_public(&item.vis) => {
                    gather(&item.tree, &mut names);
                    continue;
                }
                Item::Fn(item) => (&item.vis, &item.sig.ident),
                Item::Struct(item) => (&item.vis, &item.ident),
                Item::Const(item) => (&item.vis, &item.ident),
                _ => continue,
            };
            if is_public(visibility) {
                names.insert(name.to_string());
            }
        }
    }
    names
}

fn gather(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => gather(&path.tree, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| gather(tree, names)),
        UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Rename(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Glob(_) => {}
    }
}

/// The item without what its users do not see; `None` where they do not see it at all.
fn shown(mut item: Item, exported: &BTreeSet<String>) -> Option<Item> {
    let is_exported = |name: &syn::Ident| exported.contains(&name.to_string());
    match &mut item {
        Item::Struct(item) if is_public(&item.vis) && is_exported(&item.ident) => {
            item.attrs.retain(matters);
            if let Fields::Named(fields) = &mut item.fields {
                let named = std::mem::take(&mut fields.named).into_iter();
                fields.named = named.filter(|field| is_public(&field.vis)).collect();
            }
            if let Fields::Unnamed(fields) = &mut item.fields {
                let unnamed = std::mem::take(&mut fields.unnamed).into_iter();
                fields.unnamed = unnamed.filter(|field| is_public(&field.vis)).collect();
            }
            item.fields.iter_mut().for_each(|field| field.attrs.clear());
        }
        Item::Enum(item) if is_public(&item.vis) && is_exported(&item.ident) => {
            item.attrs.retain(matters);
            for variant in &mut item.variants {
                variant.attrs.retain(matters);
                variant.fields.iter_mut().for_each(|field| field.attrs.clear());
            }
        }
        Item::Trait(item) if is_public(&item.vis) && is_exported(&item.ident) => {
            item.attrs.retain(matters);
            for item in &mut item.items {
                if let syn::TraitItem::Fn(method) = item {
                    method.attrs.retain(matters);
                    method.default = method.default.is_some().then(empty);
                }
            }
        }
        Item::Fn(item) if is_public(&item.vis) && is_exported(&item.sig.ident) => {
            item.attrs.retain(matters);
            *item.block = empty();
        }
        Item::Impl(item) => {
            let Type::Path(of) = &*item.self_ty else { return None };
            let is_of_ours = of.path.segments.last().is_some_and(|s| is_exported(&s.ident));
            item.attrs.retain(matters);
            if let Some((implemented, _)) = &item.trait_ {
                let is_our_trait =
                    implemented.segments.last().is_some_and(|s| is_exported(&s.ident));
                if !is_of_ours && !is_our_trait {
                    return None;
                }
                item.items.clear();
                return Some(Item::Impl(item.clone()));
            }
            if !is_of_ours {
                return None;
            }
            item.items.retain_mut(|item| {
                let ImplItem::Fn(method) = item else { return false };
                method.attrs.retain(matters);
                method.block = empty();
                is_public(&method.vis)
            });
            if item.items.is_empty() {
                return None;
            }
        }
        _ => return None,
    }
    Some(item)
}

fn text(item: Item) -> String {
    prettyplease::unparse(&syn::File {
        shebang: None,
        frontmatter: None,
        attrs: Vec::new(),
        items: vec![item],
    })
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Features, derived traits and what users may not rely on; not the docs, and not how it is made.
fn matters(attribute: &Attribute) -> bool {
    let text = attribute.meta.to_token_stream().to_string();
    text == "non_exhaustive" || text.starts_with("cfg (") || text.starts_with("derive (")
}

fn empty() -> syn::Block {
    syn::parse_quote!({})
}
