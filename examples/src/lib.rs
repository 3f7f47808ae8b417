//! The examples are in `erp_orders/` and `axum_orders/`; run one with `cargo run --example <name>`.

/// Compiles and runs the programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// And those of the attribute's documentation, whose own crate would have to build the runtime once
/// more for them: what a crate of macros depends on is built for itself.
#[cfg(doctest)]
#[doc = include_str!("../../lockmacro/src/attribute.md")]
pub struct Attribute;
