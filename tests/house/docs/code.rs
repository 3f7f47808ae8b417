//! What the tables of the documents name, read from the code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The Rust files of a folder and of its folders.
pub fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files.extend(sources(&path)),
            false if path.extension().is_some_and(|end| end == "rs") => files.push(path),
            false => {}
        }
    }
    files
}

/// The variants of an enum.
pub fn variants(path: &Path, name: &str) -> BTreeSet<String> {
    let file = syn::parse_file(&read(path)).expect("Rust");
    let found = file.items.into_iter().find_map(|item| match item {
        syn::Item::Enum(found) if found.ident == name => Some(found),
        _ => None,
    });
    let variants = found.expect("the enum").variants.into_iter();
    variants.map(|variant| variant.ident.to_string()).collect()
}

/// The strings that a file compares settings with, outside of its tests: those of each `match` of
/// the variable `name`, alone or as the first one of a pair.
pub fn settings(path: &Path) -> BTreeSet<String> {
    fn is_name(expr: &syn::Expr) -> bool {
        match expr {
            syn::Expr::Path(path) => path.path.is_ident("name"),
            syn::Expr::Tuple(pair) => pair.elems.first().is_some_and(is_name),
            _ => false,
        }
    }
    fn collect(pattern: &syn::Pat, found: &mut BTreeSet<String>) {
        match pattern {
            syn::Pat::Lit(syn::PatLit { lit: syn::Lit::Str(text), .. }) => {
                found.insert(text.value());
            }
            syn::Pat::Guard(guarded) => collect(&guarded.pat, found),
            syn::Pat::Or(any) => any.cases.iter().for_each(|case| collect(case, found)),
            syn::Pat::Tuple(pair) => pair.elems.iter().take(1).for_each(|one| collect(one, found)),
            _ => {}
        }
    }
    #[derive(Default)]
    struct Settings(BTreeSet<String>);
    impl<'a> Visit<'a> for Settings {
        fn visit_expr_match(&mut self, found: &'a syn::ExprMatch) {
            if is_name(&found.expr) {
                found.arms.iter().for_each(|arm| collect(&arm.pat, &mut self.0));
            }
            visit::visit_expr_match(self, found);
        }
        fn visit_item_mod(&mut self, _: &'a syn::ItemMod) {}
    }
    let mut settings = Settings::default();
    settings.visit_file(&syn::parse_file(&read(path)).expect("Rust"));
    settings.0
}

/// The texts of a file's log events.
pub fn events(path: &Path) -> BTreeSet<String> {
    let mut events = BTreeSet::new();
    let tokens: TokenStream = read(path).parse().expect("Rust");
    gather(tokens, &mut events);
    events
}

/// An event is `tracing::warn!(…)`, and its text is the last string in it that is no value.
fn gather(tokens: TokenStream, events: &mut BTreeSet<String>) {
    let levels = ["trace", "debug", "info", "warn", "error"];
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (nth, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let before = |back: usize| nth.checked_sub(back).map(|at| tokens[at].to_string());
        let is_event = before(1).is_some_and(|bang| bang == "!")
            && before(2).is_some_and(|level| levels.contains(&level.as_str()))
            && before(5).is_some_and(|path| path == "tracing");
        if is_event {
            let literals = group.stream().into_iter().filter_map(|token| match token {
                TokenTree::Literal(literal) => {
                    syn::parse_str::<syn::LitStr>(&literal.to_string()).ok()
                }
                _ => None,
            });
            events.extend(literals.last().map(|text| text.value()));
        } else {
            gather(group.stream(), events);
        }
    }
}

/// The words of a file that begin like this, such as the names of metrics.
pub fn words(path: &Path, start: &str) -> BTreeSet<String> {
    let text = read(path);
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_in_word(c)).filter(|word| word.starts_with(start));
    words.map(str::to_owned).collect()
}

/// The features of a manifest, without `default`.
pub fn features(manifest: &Path) -> BTreeSet<String> {
    let text = read(manifest);
    let (_, features) = text.split_once("[features]").expect("it has features");
    let features = features.split("\n[").next().unwrap_or_default().lines();
    let names = features.filter_map(|line| line.split_once(" = ["));
    names.map(|(name, _)| name.to_owned()).filter(|name| name != "default").collect()
}
