//! Values of statements, and columns of rows.

use std::borrow::Cow;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use super::error::unexpected;
use crate::store::remote::error::RemoteError;
use crate::value::key::LockKey;

/// The values of a statement with their types.
pub(crate) type Values<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// The types of all values.
const TYPES: [Type; 7] = [
    Type::TEXT,
    Type::INT8,
    Type::BOOL,
    Type::INT4,
    Type::TEXT_ARRAY,
    Type::INT8_ARRAY,
    Type::INT4_ARRAY,
];

/// A value with its type.
pub(crate) fn typed<T: ToSql + Sync>(value: &T) -> (&(dyn ToSql + Sync), Type) {
    (value, TYPES.into_iter().find(T::accepts).unwrap_or(Type::UNKNOWN))
}

/// [`Values`] of expressions.
macro_rules! values {
    ($($value:expr),*) => { &[$($crate::store::postgres::client::values::typed(&$value)),*] };
}
pub(crate) use values;

/// The key as a text of the database, which cannot have a NUL in it. Keys of users do not begin
/// with `lm1:`.
pub(crate) fn stored(key: &LockKey) -> Cow<'_, str> {
    let key = key.as_str();
    if key.contains('\0') {
        Cow::Owned(format!("lm1:{}", key.replace('%', "%25").replace('\0', "%00")))
    } else {
        Cow::Borrowed(key)
    }
}

/// The key that is [stored] so.
#[cfg(any(feature = "inspect", feature = "defer"))]
pub(crate) fn read_back(text: &str) -> String {
    let encoded = text.strip_prefix("lm1:");
    encoded.map_or_else(|| text.to_owned(), |key| key.replace("%00", "\0").replace("%25", "%"))
}

/// A column of a row.
pub(crate) fn column<'a, T: FromSql<'a>>(row: &'a Row, nth: usize) -> Result<T, RemoteError> {
    row.try_get(nth).map_err(unexpected)
}

pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
