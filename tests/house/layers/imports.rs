//! Which file of a crate uses which other one, read from the paths in its source.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, UseTree};

/// The path of a module from the crate's root: `store::redis::wait`.
pub type Module = Vec<String>;

/// The files of a crate, and what each imports.
pub struct Imports {
    /// Relative to `src`: `store/redis/wait.rs`.
    files: BTreeMap<Module, String>,
    /// The names that a module takes from elsewhere: a child or a reader of `mod.rs` follows them.
    names: BTreeMap<Module, BTreeMap<String, Module>>,
    paths: BTreeMap<Module, BTreeSet<Module>>,
}

impl Imports {
    /// Reads every file below `src`, except the binaries.
    pub fn read(src: &Path) -> Imports {
        let mut imports =
            Imports { files: BTreeMap::new(), names: BTreeMap::new(), paths: BTreeMap::new() };
        imports.read_module(src, "lib.rs", Vec::new());
        imports
    }

    fn read_module(&mut self, src: &Path, file: &str, module: Module) {
        let text = fs::read_to_string(src.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        let folder = match file.strip_suffix("mod.rs").or(file.strip_suffix("lib.rs")) {
            Some(folder) => folder.to_owned(),
            None => format!("{}/", file.trim_end_matches(".rs")),
        };
        for item in &parsed.items {
            if let Item::Mod(child) = item
                && child.content.is_none()
                && !is_test(&child.attrs)
            {
                let name = child.ident.to_string();
                let mut file = format!("{folder}{name}.rs");
                if !src.join(&file).exists() {
                    file = format!("{folder}{name}/mod.rs");
                }
                let child = [&module[..], &[name]].concat();
                self.read_module(src, &file, child);
            }
        }
        let (names, paths) = Found::read(&module, &parsed);
        self.names.insert(module.clone(), names);
        self.paths.insert(module.clone(), paths);
        self.files.insert(module, file.to_owned());
    }

    /// The files that are built into the library.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.values().map(String::as_str)
    }

    /// The files, and the files that each of them uses. The root of the crate is none of them: it
    /// lists the public names.
    pub fn arrows(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut arrows = BTreeMap::new();
        for (module, file) in self.files.iter().filter(|(module, _)| !module.is_empty()) {
            let used = self.paths[module].iter().filter_map(|path| self.file_of(path));
            let others = used.filter(|used| used != file && *used != "lib.rs").collect();
            arrows.insert(file.as_str(), others);
        }
        arrows
    }

    /// The file that defines what the path names, with re-exports followed.
    fn file_of(&self, path: &[String]) -> Option<&str> {
        let mut path = path.to_vec();
        // No chain of re-exports is that long: a circle of them ends here.
        for _ in 0..16 {
            let depth = (0..=path.len()).rev().find(|n| self.files.contains_key(&path[..*n]))?;
            let module = path[..depth].to_vec();
            let Some(target) = path.get(depth).and_then(|name| self.names[&module].get(name))
            else {
                return Some(&self.files[&module]);
            };
            path = [target, &path[depth + 1..]].concat();
        }
        None
    }
}

/// Whether the item is built for tests only.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("test")
            || a.path().is_ident("cfg")
                && a.parse_args::<syn::Path>().is_ok_and(|p| p.is_ident("test"))
    })
}

/// The attributes of an item of a kind that may be built for tests only.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

struct Found<'a> {
    module: &'a [String],
    /// The inline modules around the code that is read.
    inline: Module,
    names: BTreeMap<String, Module>,
    /// The names that inline modules and functions import.
    inner_names: BTreeMap<String, Module>,
    paths: BTreeSet<Module>,
    /// Paths that start at a name, which may be an imported module.
    named: Vec<Module>,
}

impl<'a> Found<'a> {
    /// The names that a file imports, and all paths of this crate in it.
    fn read(module: &'a [String], file: &File) -> (BTreeMap<String, Module>, BTreeSet<Module>) {
        let (inline, names, inner_names) = Default::default();
        let (paths, named) = Default::default();
        let mut found = Found { module, inline, names, inner_names, paths, named };
        found.visit_file(file);
        for path in found.named {
            let names = [&found.names, &found.inner_names];
            for target in names.iter().filter_map(|names| names.get(&path[0])) {
                found.paths.insert([target, &path[1..]].concat());
            }
        }
        (found.names, found.paths)
    }

    /// The path from the crate's root, if it is one of this crate.
    fn absolute(&self, path: &[String]) -> Option<Module> {
        let mut base = [self.module, &self.inline].concat();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while let Some("super") = rest.first().map(String::as_str) {
                    base.pop()?;
                    rest = &rest[1..];
                }
            }
            _ => return None,
        }
        Some([&base[..], rest].concat())
    }

    fn import(&mut self, tree: &UseTree, path: Vec<String>) {
        match tree {
            UseTree::Path(node) => {
                self.import(&node.tree, [path, vec![node.ident.to_string()]].concat())
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, path.clone());
                }
            }
            UseTree::Name(name) if name.ident == "self" => {
                let own = path.last().cloned().unwrap_or_default();
                self.take(own, path);
            }
            UseTree::Name(name) => {
                let own = name.ident.to_string();
                self.take(own.clone(), [path, vec![own]].concat());
            }
            UseTree::Rename(name) => {
                let path = [path, vec![name.ident.to_string()]].concat();
                self.take(name.rename.to_string(), path);
            }
            UseTree::Glob(_) => self.take(String::from("*"), path),
        }
    }

    fn take(&mut self, name: String, path: Vec<String>) {
        // A path without `crate`, `self` or `super` starts at a child, or at another crate.
        let here = || [self.module, &self.inline, &path].concat();
        let path = self.absolute(&path).unwrap_or_else(here);
        self.paths.insert(path.clone());
        let names = if self.inline.is_empty() { &mut self.names } else { &mut self.inner_names };
        names.insert(name, path);
    }

    /// Paths within a macro's arguments, which are tokens only.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if path.is_empty() || colons == 2 => {
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(p) if p.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    self.found(&std::mem::take(&mut path));
                    self.scan(group.stream());
                }
                other => {
                    self.found(&std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Ident(name) = other {
                        path.push(name.to_string());
                    }
                }
            }
        }
        self.found(&path);
    }

    fn found(&mut self, path: &[String]) {
        if path.len() < 2 {
            return;
        }
        match self.absolute(path) {
            Some(path) => drop(self.paths.insert(path)),
            None => self.named.push(path.to_vec()),
        }
    }
}

impl<'ast> Visit<'ast> for Found<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_test(attributes(item)) {
            return;
        }
        match item {
            Item::Mod(inline) if inline.content.is_some() => {
                self.inline.push(inline.ident.to_string());
                visit::visit_item(self, item);
                self.inline.pop();
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, Vec::new());
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.found(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, node: &'ast syn::Macro) {
        self.scan(node.tokens.clone());
        visit::visit_macro(self, node);
    }
}
