//! Values of statements, and columns of rows.

use std::borrow::Cow;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use super::error::unexpected;
use crate::store::calls::error::CallError;
use crate::value::key::LockKey;

/// The values of a statement with their types.
pub(super) type Values<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// The key as a text of the database, which cannot have a NUL in it. Keys of users do not begin with
/// `lm1:`.
pub(super) fn stored(key: &LockKey) -> Cow<'_, str> {
    let key = key.as_str();
    match key.contains('\0') {
        false => Cow::Borrowed(key),
        true => Cow::Owned(format!("lm1:{}", key.replace('%', "%25").replace('\0', "%00"))),
    }
}

/// The key that is [stored] so.
#[cfg(feature = "inspect")]
pub(super) fn read_back(text: &str) -> String {
    let encoded = text.strip_prefix("lm1:");
    encoded.map_or_else(|| text.to_owned(), |key| key.replace("%00", "\0").replace("%25", "%"))
}

/// A column of a row.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, nth: usize) -> Result<T, CallError> {
    row.try_get(nth).map_err(|_| unexpected())
}

pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
