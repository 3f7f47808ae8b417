//! What the files of a crate use of the system: clocks, random numbers and streams to servers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Item, UseTree};

use crate::imports::{attributes, is_test};

/// The paths that a file uses, written out: `std::time::SystemTime::now`. Paths within a macro's
/// arguments are not read, and the code of tests is not either.
pub fn paths(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut uses = Uses { names: BTreeMap::new(), paths: Vec::new() };
    // Imports first: a path may stand above the import of its first name.
    uses.visit_file(&parsed);
    let names = uses.names;
    let written_out = |path: Vec<String>| match names.get(&path[0]) {
        Some(whole) => [&whole[..], &path[1..]].concat().join("::"),
        None => path.join("::"),
    };
    uses.paths
        .into_iter()
        .map(written_out)
        .chain(names.values().map(|path| path.join("::")))
        .collect()
}

struct Uses {
    /// The imported names, and what each is.
    names: BTreeMap<String, Vec<String>>,
    paths: Vec<Vec<String>>,
}

impl Uses {
    fn import(&mut self, tree: &UseTree, path: &[String]) {
        let with = |name: &syn::Ident| [path, &[name.to_string()]].concat();
        let (own, path) = match tree {
            UseTree::Path(node) => return self.import(&node.tree, &with(&node.ident)),
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, path));
            }
            UseTree::Name(name) if name.ident == "self" => {
                (path.last().cloned().unwrap_or_default(), path.to_vec())
            }
            UseTree::Name(name) => (name.ident.to_string(), with(&name.ident)),
            UseTree::Rename(name) => (name.rename.to_string(), with(&name.ident)),
            UseTree::Glob(_) => (path.join("::"), path.to_vec()),
        };
        self.names.insert(own, path);
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[]);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|s| s.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.paths.push(vec![format!(".{}", call.method)]);
        visit::visit_expr_method_call(self, call);
    }
}
