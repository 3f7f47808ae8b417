//! The names of settings by which code recognizes an [`InvalidSetting`](super::LockError).

/// What a URL as a whole is invalid by.
pub(crate) const URL: &str = "url";
/// The database of a Redis server.
pub(crate) const DB: &str = "db";
/// The schema with the functions of the locks in PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) const SCHEMA: &str = "schema";
