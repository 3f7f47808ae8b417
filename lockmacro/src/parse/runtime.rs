//! The path of the runtime, from `crate = path` or from Cargo.toml.

use std::path::PathBuf;
use std::{env, fs};

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Error, Path, Result, parse_quote_spanned};

use crate::messages;

const PACKAGE: &str = "lockmacro-runtime";
/// The package's name in a path.
const NAME: &str = "lockmacro_runtime";
const ATTRIBUTE: &str = "lockmacro";

/// The path of the runtime.
pub(crate) struct Runtime {
    path: Path,
    /// Whether the path ends in the module of this version, so that a wrong path is one error, at
    /// the path.
    pub(crate) is_checked: bool,
}

impl Runtime {
    /// The runtime that `crate = path` gives, or else the one in Cargo.toml.
    pub(crate) fn find(written: Option<&Path>, site: Span) -> Result<Self> {
        if let Some(path) = written {
            return Ok(Self { path: path.clone(), is_checked: true });
        }
        match in_manifest() {
            Found::As(name) => Ok(Self { path: path(&name, site), is_checked: false }),
            Found::Elsewhere => {
                let attribute = Span::mixed_site();
                let path = parse_quote_spanned!(attribute=> lockmacro_runtime);
                Ok(Self { path: private(path), is_checked: true })
            }
            Found::Missing => {
                let version =
                    concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
                let message = messages::missing_runtime(PACKAGE, version);
                Err(Error::new(Span::call_site(), message))
            }
        }
    }

    /// Output: `::lockmacro_runtime::__private`
    pub(crate) fn private(&self, site: Span) -> TokenStream {
        let path = &self.path;
        if self.is_checked {
            path.to_token_stream()
        } else {
            quote_spanned!(site=> #path::__private)
        }
    }
}

impl ToTokens for Runtime {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.path.to_tokens(tokens);
    }
}

/// The runtime's module for expansions, which re-exports the whole runtime, at a path.
pub(crate) fn private(path: Path) -> Path {
    parse_quote_spanned!(path.span()=> #path::__private)
}

/// The runtime where the attribute is on no function.
pub(crate) fn anywhere(site: Span) -> Path {
    match in_manifest() {
        Found::As(name) => path(&name, site),
        Found::Elsewhere | Found::Missing => path(NAME, site),
    }
}

fn path(name: &str, site: Span) -> Path {
    let name = Ident::new(name, site);
    parse_quote_spanned!(site=> ::#name)
}

/// The runtime in a Cargo.toml.
#[derive(Debug, PartialEq)]
enum Found {
    /// Under this name, or probably so.
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
    let manifest = folder.and_then(|folder| fs::read_to_string(folder.join("Cargo.toml")).ok());
    manifest.map_or_else(|| Found::As(NAME.to_owned()), |manifest| found(&manifest))
}

/// Looks for the one line `name = { package = "lockmacro-runtime", .. }`. Where the name is
/// elsewhere, as in the workspace, the user writes `crate = name`.
fn found(manifest: &str) -> Found {
    let lines = || manifest.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let is_of = |line: &str, name: &str| {
        let rest = line.strip_prefix(name).unwrap_or("no");
        rest.starts_with(['=', '.', ' ']) || line.ends_with(&format!("dependencies.{name}]"))
    };
    if !manifest.replace('_', "-").contains(PACKAGE) {
        return if lines().any(|line| is_of(line, ATTRIBUTE)) {
            Found::Missing
        } else {
            Found::Elsewhere
        };
    }
    let names = lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        let value = value.replace(' ', "").replace('\'', "\"");
        let is_renamed = value.starts_with('{') && value.contains("package=\"lockmacro-runtime\"");
        is_renamed.then(|| name.trim().replace('-', "_"))
    });
    match names.collect::<Vec<_>>().as_slice() {
        [name]
            if !lines().any(|line| is_of(line, PACKAGE))
                && syn::parse_str::<Ident>(name).is_ok() =>
        {
            Found::As(name.clone())
        }
        _ => Found::As(NAME.to_owned()),
    }
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
        ] {
            assert_eq!(found(manifest), Found::As(name.to_owned()), "{manifest}");
        }
    }

    #[test]
    fn what_is_not_clear_is_not_guessed() {
        for manifest in [
            "[dependencies]\nlockmacro-runtime = \"0.1\"",
            "[dependencies]\nlockmacro-runtime.workspace = true",
            "[dependencies.lockmacro-runtime]\nversion = \"0.1\"",
            "[dependencies]\nlockmacro = \"0.1\"\n# locks = { package = \"lockmacro-runtime\" }",
            "[dependencies]\na = { package = \"lockmacro-runtime\" }\nb = { package = \
             \"lockmacro-runtime\" }",
            "[dependencies]\nlockmacro-runtime = \"1\"\n[dev-dependencies]\nb = { package = \
             \"lockmacro-runtime\" }",
            "[dependencies]\nlocks = { package = \"lockmacro-runtimes\" }",
            "[dependencies.locks]\nversion = \"0.1\"\npackage = \"lockmacro-runtime\"",
            "[package]\nname = \"lockmacro_runtime\"",
        ] {
            assert_eq!(found(manifest), Found::As(NAME.to_owned()), "{manifest}");
        }
    }

    #[test]
    fn a_runtime_is_missing_where_the_attribute_is_a_dependency() {
        for manifest in [
            "[dependencies]\nlockmacro = \"0.1\"",
            "[dependencies]\nlockmacro.workspace = true",
            "[dependencies.lockmacro]\nversion = \"0.1\"",
        ] {
            assert_eq!(found(manifest), Found::Missing, "{manifest}");
        }
        // A crate that the package depends on may re-export both.
        for manifest in ["", "[dependencies]\nserde = \"1\"", "[package]\nname = \"lockmacro\""] {
            assert_eq!(found(manifest), Found::Elsewhere, "{manifest}");
        }
    }
}
