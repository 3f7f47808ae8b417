//! The path of the runtime, from `crate = path` or from Cargo.toml.

use std::path::{Path as FilePath, PathBuf};
use std::{env, fs};

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Error, Path, Result, parse_quote_spanned};

const PACKAGE: &str = "lockmacro-runtime";
const ATTRIBUTE: &str = "lockmacro";

/// The path of the runtime.
pub(crate) struct Runtime {
    path: Path,
    /// Whether the path ends in the module of this version, so that a wrong path is one error, at
    /// the path.
    is_checked: bool,
}

impl Runtime {
    /// The runtime at a path that may be wrong.
    fn at(path: Path) -> Self {
        Self { path: of_this_version(path), is_checked: true }
    }

    /// The runtime that `crate = path` gives, or else the one in Cargo.toml.
    pub(crate) fn find(written: Option<&Path>, site: Span) -> Result<Self> {
        if let Some(path) = written {
            return Ok(Self { path: path.clone(), is_checked: true });
        }
        match in_manifest() {
            Found::ByItsName | Found::As(_) => Ok(Self { path: path(site), is_checked: false }),
            Found::Elsewhere => {
                let attribute = Span::mixed_site();
                Ok(Self::at(parse_quote_spanned!(attribute=> lockmacro_runtime)))
            }
            Found::Missing => Err(Error::new(Span::call_site(), missing())),
        }
    }

    pub(crate) fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// The module of this version.
    ///
    /// Output: `::lockmacro_runtime::__same_version_as_lockmacro_0_1_0`
    pub(crate) fn module(&self, site: Span) -> TokenStream {
        let (path, module) = (&self.path, module(site));
        match self.is_checked {
            true => path.to_token_stream(),
            false => quote_spanned!(site=> #path::#module),
        }
    }
}

impl ToTokens for Runtime {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.path.to_tokens(tokens);
    }
}

/// The runtime's module for this version of the macro. A runtime of another version has no such
/// module, and the compiler's message shows this name then.
pub(crate) fn module(site: Span) -> Ident {
    let version = env!("CARGO_PKG_VERSION").replace(['.', '-', '+'], "_");
    Ident::new(&format!("__same_version_as_lockmacro_{version}"), site)
}

/// The module of this version, which re-exports the whole runtime, at a path.
pub(crate) fn of_this_version(path: Path) -> Path {
    let module = module(path.span());
    parse_quote_spanned!(path.span()=> #path::#module)
}

/// `::lockmacro_runtime`, or the runtime's name in Cargo.toml.
pub(crate) fn path(site: Span) -> Path {
    match in_manifest() {
        Found::As(name) => {
            let name = Ident::new(&name, site);
            parse_quote_spanned!(site=> ::#name)
        }
        Found::ByItsName | Found::Elsewhere | Found::Missing => {
            parse_quote_spanned!(site=> ::lockmacro_runtime)
        }
    }
}

fn missing() -> String {
    let version = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    format!(
        "the attribute needs the crate `{PACKAGE}`, which is not in this package's Cargo.toml: add \
         `{PACKAGE} = \"{version}\"` to its `[dependencies]`, or write `crate = path` with the \
         path under which another crate re-exports it"
    )
}

/// The runtime in a Cargo.toml.
#[derive(Debug, PartialEq)]
enum Found {
    ByItsName,
    As(String),
    /// The package depends neither on the runtime nor on the attribute's crate: another crate
    /// re-exports the attribute, and with it perhaps the runtime.
    Elsewhere,
    /// The package depends on the attribute's crate alone.
    Missing,
}

fn in_manifest() -> Found {
    let folder = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    // A manifest that cannot be read is no mistake: other build tools have none.
    folder.and_then(|folder| look(&folder)).unwrap_or(Found::ByItsName)
}

/// Looks at the manifests of the package in a folder and of its workspace.
fn look(folder: &FilePath) -> Option<Found> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    // Enough for most packages: the manifest is read for each function with the attribute.
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
    let inherited = |package: &str| -> Vec<&str> {
        entries(workspace)
            .filter(|entry| entry.section == "workspace.dependencies" && entry.is(package))
            .map(|entry| entry.name)
            .collect()
    };
    let inherited_runtimes = inherited(PACKAGE);
    if !is_mentioned(manifest) && !inherited_runtimes.iter().any(|name| manifest.contains(name)) {
        let inherited = inherited(ATTRIBUTE);
        let mut own = entries(manifest).filter(|entry| !entry.section.starts_with("workspace"));
        let has_attribute = own.any(|entry| {
            let is_inherited = entry.has("workspace", "true") && inherited.contains(&entry.name);
            entry.name == ATTRIBUTE || entry.is(ATTRIBUTE) || is_inherited
        });
        return if has_attribute { Found::Missing } else { Found::Elsewhere };
    }
    let entries = entries(manifest).filter(|entry| !entry.section.starts_with("workspace"));
    let mut names: Vec<_> = entries
        .filter(|entry| {
            let is_inherited =
                entry.has("workspace", "true") && inherited_runtimes.contains(&entry.name);
            entry.is(PACKAGE) || is_inherited || entry.name == PACKAGE
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
    /// The text after the name, without blanks.
    rest: String,
}

impl Entry<'_> {
    fn has(&self, setting: &str, value: &str) -> bool {
        let text = format!("{setting}={value}");
        self.rest.match_indices(&text).any(|(at, _)| {
            self.rest[..at].chars().last().is_none_or(|before| matches!(before, '{' | ',' | '.'))
        })
    }

    /// Whether this is a package under a name that may be another one.
    fn is(&self, package: &str) -> bool {
        ['"', '\''].iter().any(|quote| self.has("package", &format!("{quote}{package}{quote}")))
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
            "[dependencies]\nlockmacro-runtime = \"0.1\"",
            "[dependencies]\nlockmacro-runtime.workspace = true",
            "[dependencies]\nlockmacro = \"0.1\"\n# locks = { package = \"lockmacro-runtime\" }",
            "[dependencies]\na = { package = \"lockmacro-runtime\" }\nb = { package = \
             \"lockmacro-runtime\" }",
            "[dependencies]\nlockmacro-runtime = \"1\"\n[dev-dependencies]\nb = { package = \
             \"lockmacro-runtime\" }",
            "[dependencies]\nlocks = { package = \"lockmacro-runtimes\" }",
            "[package.metadata]\nlocks = { package = \"lockmacro-runtime\" }",
            "[dependencies]\nlockmacro = \"0.1\"\nlocks = {\n  workspace = true\n}",
        ] {
            assert_eq!(found(manifest, workspace), Found::ByItsName, "{manifest}");
        }
        assert_eq!(found(workspace, workspace), Found::ByItsName);
        assert_eq!(found("[package]\nname = \"lockmacro_runtime\"", ""), Found::ByItsName);
    }

    #[test]
    fn a_runtime_is_missing_where_the_attribute_is_a_dependency() {
        let workspace = "[workspace.dependencies]\nlockmacro-runtime = \"0.1\"\n\
                         lockmacro = \"0.1\"\n\
                         macros = { package = \"lockmacro\", version = \"0.1\" }";
        for manifest in [
            "[dependencies]\nlockmacro = \"0.1\"",
            "[dependencies]\nlockmacro.workspace = true",
            "[dependencies]\nmacros.workspace = true",
            "[dependencies.lockmacro]\nversion = \"0.1\"",
            "[dependencies]\nlocks = { package = \"lockmacro\", version = \"0.1\" }",
        ] {
            assert_eq!(found(manifest, workspace), Found::Missing, "{manifest}");
        }
        // A crate that the package depends on may re-export both.
        for manifest in ["", "[dependencies]\nserde = \"1\"", "[package]\nname = \"lockmacro\""] {
            assert_eq!(found(manifest, workspace), Found::Elsewhere, "{manifest}");
        }
    }
}
