//! Odd uses of the attribute that compile without a warning, and do what they say.

#![deny(warnings)]

mod attribute_below_others;
mod defer_names;
mod unsafe_functions;
