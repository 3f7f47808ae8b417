//! Where the runtime is.

use std::path::{Path as FilePath, PathBuf};
use std::{env, fs};

use proc_macro2::{Ident, Span};
use syn::spanned::Spanned as _;
use syn::{Path, parse_quote_spanned};

const PACKAGE: &str = "lockmacro-runtime";

/// The runtime's module for this version of the macro: another version has no such module.
pub(crate) fn module(site: Span) -> Ident {
    Ident::new(
        &format!("__macro_v{}", env!("CARGO_PKG_VERSION").replace(['.', '-', '+'], "_")),
        site,
    )
}

/// All of the runtime by that module, which nothing else has.
pub(crate) fn of_this_version(path: Path) -> Path {
    let module = module(path.span());
    parse_quote_spanned!(path.span()=> #path::#module)
}

/// `::lockmacro_runtime`, or what Cargo.toml calls it.
pub(crate) fn path(site: Span) -> Path {
    let folder = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    match folder.and_then(|folder| look(&folder)).unwrap_or(Found::ByItsName) {
        Found::ByItsName => parse_quote_spanned!(site=> ::lockmacro_runtime),
        // Without `::` the compiler says how to add the crate, if it is really not there.
        Found::Nowhere => parse_quote_spanned!(site=> lockmacro_runtime),
        Found::As(name) => {
            let name = Ident::new(&name, site);
            parse_quote_spanned!(site=> ::#name)
        }
    }
}

/// Where the runtime is in a Cargo.toml.
#[derive(Debug, PartialEq)]
enum Found {
    ByItsName,
    As(String),
    Nowhere,
}

/// Looks at the manifests of the package in a folder and of its workspace.
fn look(folder: &FilePath) -> Option<Found> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    // Most packages: this is read for each function with the attribute.
    let is_named = manifest.lines().any(|line| line.starts_with(PACKAGE));
    if is_named
        && ["\"lockmacro-runtime\"", "'lockmacro-runtime'"]
            .iter()
            .all(|name| !manifest.contains(name))
    {
        return Some(Found::ByItsName);
    }
    let workspace = folder.ancestors().find_map(|folder| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        manifest.lines().any(|line| line.trim_start().starts_with("[workspace")).then_some(manifest)
    });
    Some(found(&manifest, &workspace.unwrap_or_default()))
}

/// Looks for `name = { package = "lockmacro-runtime" }`, also where the workspace has it.
fn found(manifest: &str, workspace: &str) -> Found {
    let is_mentioned = |text: &str| text.replace('_', "-").contains(PACKAGE);
    if !is_mentioned(manifest) && !is_mentioned(workspace) {
        return Found::Nowhere;
    }
    let inherited: Vec<_> = entries(workspace)
        .filter(|entry| entry.section == "workspace.dependencies" && entry.is_runtime())
        .map(|entry| entry.name)
        .collect();
    let entries = entries(manifest).filter(|entry| !entry.section.starts_with("workspace"));
    let mut names: Vec<_> = entries
        .filter(|entry| {
            let is_inherited = entry.has("workspace", "true") && inherited.contains(&entry.name);
            entry.is_runtime() || is_inherited || entry.name == PACKAGE
        })
        .map(|entry| entry.name.replace('-', "_"))
        .collect();
    names.dedup();
    match names.as_slice() {
        [name] if name != "lockmacro_runtime" && syn::parse_str::<Ident>(name).is_ok() => {
            Found::As(name.clone())
        }
        _ => Found::ByItsName,
    }
}

/// A line of a Cargo.toml about a dependency.
struct Entry<'a> {
    section: &'a str,
    name: &'a str,
    /// Without blanks.
    rest: String,
}

impl Entry<'_> {
    fn has(&self, setting: &str, value: &str) -> bool {
        let text = format!("{setting}={value}");
        self.rest.match_indices(&text).any(|(at, _)| {
            self.rest[..at].chars().last().is_none_or(|before| matches!(before, '{' | ',' | '.'))
        })
    }

    fn is_runtime(&self) -> bool {
        self.has("package", "\"lockmacro-runtime\"") || self.has("package", "'lockmacro-runtime'")
    }
}

/// `name = ..`, `name.setting = ..`, and `setting = ..` below `[dependencies.name]`.
fn entries(manifest: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut header = "";
    manifest.lines().filter_map(move |line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[') {
            header = name.trim_end_matches(']').trim();
            return None;
        }
        let (setting, value) = line.split_once('=')?;
        let plain = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        if header.ends_with("dependencies") {
            let (name, inner) = setting.trim().split_once('.').unwrap_or((setting.trim(), ""));
            let rest = format!("{}={}", plain(inner), plain(value));
            let rest = rest.strip_prefix('=').map_or(rest.clone(), str::to_owned);
            return Some(Entry { section: header, name: name.trim_matches(['"', '\'']), rest });
        }
        let (section, name) = header.rsplit_once('.')?;
        let rest = format!("{}={}", plain(setting), plain(value));
        section.ends_with("dependencies").then_some(Entry { section, name, rest })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_is_found_where_it_is_clear() {
        for (manifest, name) in [
            (
                "[dependencies]\nlocks = { package = \"lockmacro-runtime\", version = \"0.1\" }",
                "locks",
            ),
            (
                "[dev-dependencies]\nmy-locks = {version=\"0.1\",package='lockmacro-runtime'} # x",
                "my_locks",
            ),
            ("[dependencies.locks]\nversion = \"0.1\"\npackage = \"lockmacro-runtime\"", "locks"),
            (
                "[dependencies]\nlocks.package = \"lockmacro-runtime\"\nlocks.version = \"1\"",
                "locks",
            ),
            (
                "[target.'cfg(unix)'.dependencies]\nlocks = { package = \"lockmacro-runtime\" }",
                "locks",
            ),
        ] {
            assert_eq!(found(manifest, ""), Found::As(name.to_owned()), "{manifest}");
        }
        let workspace = "[workspace.dependencies]\nlocks = { package = \"lockmacro-runtime\" }";
        for inherits in ["locks.workspace = true", "locks = { workspace = true }"] {
            let manifest = format!("[package]\nname = \"x\"\n[dependencies]\n{inherits}");
            assert_eq!(found(&manifest, workspace), Found::As("locks".to_owned()));
        }
    }

    #[test]
    fn what_is_not_clear_is_not_guessed() {
        let workspace = "[workspace.dependencies]\nlocks = { package = \"lockmacro-runtime\" }";
        for manifest in [
            "",
            "[dependencies]\nlockmacro-runtime = \"0.1\"",
            "[dependencies]\nlockmacro-runtime.workspace = true",
            "[dependencies]\nserde = \"1\"\n# locks = { package = \"lockmacro-runtime\" }",
            "[dependencies]\na = { package = \"lockmacro-runtime\" }\nb = { package = \"lockmacro-runtime\" }",
            "[dependencies]\nlockmacro-runtime = \"1\"\n[dev-dependencies]\nb = { package = \"lockmacro-runtime\" }",
            "[dependencies]\nlocks = { package = \"lockmacro-runtimes\" }",
            "[package.metadata]\nlocks = { package = \"lockmacro-runtime\" }",
            "[dependencies]\nother.workspace = true",
        ] {
            assert_eq!(found(manifest, workspace), Found::ByItsName, "{manifest}");
        }
        assert_eq!(found(workspace, workspace), Found::ByItsName);
        assert_eq!(found("[package]\nname = \"lockmacro_runtime\"", ""), Found::ByItsName);
        assert_eq!(found("[dependencies]\nlockmacro = \"0.1\"", ""), Found::Nowhere);
    }
}
