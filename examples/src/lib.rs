//! The examples are in `erp_orders/` and `axum_orders/`; run one with `cargo run --example <name>`.

/// Compiles and runs the programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
