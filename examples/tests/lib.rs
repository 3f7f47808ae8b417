//! Runs the code blocks of documents that belong to no crate with the runtime.

/// Compiles and runs the programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The same for the attribute's documentation. Its own crate would have to build the runtime once
/// more for them, as the dependencies of a macro crate are built separately.
#[cfg(doctest)]
#[doc = include_str!("../../lockmacro/src/attribute.md")]
pub struct Attribute;
