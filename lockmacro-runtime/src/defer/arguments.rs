//! The arguments of a deferred function, and how they are stored.

use std::any::type_name;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::run::same_value::is_same;

/// A value that can be an argument of a deferred function, because serde can write and read it.
///
/// It is implemented for every type that implements serde's `Serialize` and `DeserializeOwned`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored for a job",
    label = "this argument is stored by serde until a worker calls the function",
    note = "derive serde's `Serialize` and `Deserialize` for the types of your own in it, or take \
            what it is made from, such as an id, and make it in the body"
)]
pub trait Storable: Serialize + DeserializeOwned + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + 'static> Storable for T {}

/// One argument of a deferred function: see [`argument`].
#[derive(Debug)]
pub struct Argument<T> {
    name: &'static str,
    write: fn(&T) -> Result<String, String>,
    read: fn(&str) -> Result<T, String>,
}

/// Makes an argument of a deferred function. Error texts contain `name`.
///
/// ```
/// # use lockmacro_runtime::defer::{DeferredFn, argument};
/// let audits = DeferredFn::new(
///     "orders.audit",
///     (argument("id"), argument("note")),
///     |(id, note): (u64, String)| async move { println!("{id}: {note}") },
/// );
/// ```
pub fn argument<T: Storable>(name: &'static str) -> Argument<T> {
    Argument { name, write: write::<T>, read: read::<T> }
}

/// Writes a value and checks that the same one can be read again: `NaN` is written as `null`, which
/// is no number, and `Some(NaN)` would be read as `None`.
fn write<T: Storable>(value: &T) -> Result<String, String> {
    let text =
        serde_json::to_string(value).map_err(|error| located("it cannot be written", &error))?;
    let again = read(&text).map_err(|error| format!("it cannot be read again: {error}"))?;
    if !is_same(value, &again) {
        let detail =
            "it is another value when it is read again, as `Some(NaN)` and `Some(None)` are";
        return Err(detail.to_owned());
    }
    Ok(text)
}

fn read<T: Storable>(stored: &str) -> Result<T, String> {
    let expected = format!("what is stored is no `{}`", type_name::<T>());
    serde_json::from_str(stored).map_err(|error| located(&expected, &error))
}

/// Describes an error by its kind and place. Serde's own text would quote the stored arguments,
/// which must not appear in errors.
fn located(what: &str, error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        Category::Io => "io",
        Category::Syntax => "syntax",
        Category::Data => "data",
        Category::Eof => "end of text",
    };
    format!("{what} ({kind} error at line {}, column {})", error.line(), error.column())
}

impl<T> Argument<T> {
    fn write(&self, value: &T) -> Result<String, String> {
        (self.write)(value).map_err(|error| self.unfit(&error))
    }

    /// Reads an argument. One that the job was stored without is `None`, if it is an `Option`: an
    /// earlier version of the program has stored the job.
    fn read(&self, stored: Option<&RawValue>) -> Result<T, String> {
        let read = match stored {
            Some(stored) => (self.read)(stored.get()),
            None => (self.read)("null").map_err(|_| "the job was stored without it".to_owned()),
        };
        read.map_err(|error| self.unfit(&error))
    }

    fn unfit(&self, error: &str) -> String {
        format!("`{}`: {error}", self.name)
    }
}

/// All arguments of a function: a tuple of up to 16 [`Argument`]s.
pub trait Arguments: Send + Sync + 'static + sealed::Sealed {
    /// The values that the function is called with, as a tuple.
    type Values;

    #[doc(hidden)]
    fn write(&self, values: &Self::Values) -> Result<String, String>;

    #[doc(hidden)]
    fn read(&self, stored: &str) -> Result<Self::Values, String>;
}

mod sealed {
    pub trait Sealed {}
}

/// The stored text of each argument. Those at the end may be missing.
fn parts<const COUNT: usize>(stored: &str) -> Result<[Option<&RawValue>; COUNT], String> {
    let no_list = |error| located("they are no JSON array", &error);
    let parts: Vec<&RawValue> = serde_json::from_str(stored).map_err(no_list)?;
    let count = parts.len();
    if count > COUNT {
        return Err(format!("it has {COUNT}, and {count} are stored"));
    }
    Ok(std::array::from_fn(|nth| parts.get(nth).copied()))
}

macro_rules! tuples {
    ([$($T:ident $nth:tt)*]) => {
        impl<$($T: 'static),*> sealed::Sealed for ($(Argument<$T>,)*) {}

        impl<$($T: 'static),*> Arguments for ($(Argument<$T>,)*) {
            type Values = ($($T,)*);

            fn write(&self, _values: &Self::Values) -> Result<String, String> {
                let parts: &[String] = &[$(self.$nth.write(&_values.$nth)?),*];
                Ok(format!("[{}]", parts.join(",")))
            }

            #[allow(non_snake_case)]
            fn read(&self, stored: &str) -> Result<Self::Values, String> {
                let [$($T),*] = parts(stored)?;
                Ok(($(self.$nth.read($T)?,)*))
            }
        }
    };
    ([$($tuple:tt)*] $next:ident $nth:tt $($more:tt)*) => {
        tuples!([$($tuple)*]);
        tuples!([$($tuple)* $next $nth] $($more)*);
    };
}

tuples!([] A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13 O 14 P 15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_arguments_can_be_read() {
        let none = ();
        assert_eq!(none.write(&()).as_deref(), Ok("[]"));
        assert_eq!(none.read("[]"), Ok(()));
        let two = (argument::<u128>("id"), argument::<Option<String>>("note"));
        let values = (u128::MAX, Some("a \"b\", [c]".to_owned()));
        let stored = two.write(&values).expect("it is JSON");
        assert_eq!(two.read(&stored), Ok(values));
    }

    #[test]
    fn a_number_keeps_all_of_its_bits() {
        let price = (argument::<f64>("price"),);
        for value in [0.1 + 0.2, 31.245_270_191_439_438, f64::MIN_POSITIVE, -0.0, 1e300] {
            let stored = price.write(&(value,)).expect("it is JSON");
            let (read,) = price.read(&stored).expect("it is a number");
            assert_eq!(read.to_bits(), value.to_bits(), "{stored}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_again_is_refused() {
        let price = (argument::<f64>("price"),);
        let refused = price.write(&(f64::NAN,)).expect_err("it is no number");
        assert!(refused.starts_with("`price`: it cannot be read again: what is"), "{refused}");
        let discount = (argument::<Option<f64>>("discount"),);
        for value in [f64::NAN, f64::INFINITY] {
            let refused = discount.write(&(Some(value),)).expect_err("it would be `None`");
            assert!(refused.starts_with("`discount`: it is another value when"), "{refused}");
        }
        let nested = (argument::<Option<Option<u8>>>("note"),);
        assert!(nested.write(&(Some(None),)).is_err() && nested.write(&(None,)).is_ok());
    }

    #[test]
    fn an_option_that_was_added_at_the_end_is_none() {
        let now = (argument::<u64>("id"), argument::<Option<String>>("note"));
        assert_eq!(now.read("[1]"), Ok((1, None)));
        assert!(now.read("[]").is_err_and(|error| error.contains("`id`")));
    }

    #[test]
    fn an_error_names_the_argument_that_does_not_fit() {
        let two = (argument::<u64>("id"), argument::<String>("note"));
        let unfit = |stored: &str| two.read(stored).expect_err("it does not fit");
        let note =
            "`note`: what is stored is no `alloc::string::String` (data error at line 1, column 1)";
        assert_eq!(unfit("[1,2]"), note);
        assert_eq!(unfit("[1]"), "`note`: the job was stored without it");
        assert_eq!(unfit("[1,\"a\",3]"), "it has 2, and 3 are stored");
        assert!(unfit("{").starts_with("they are no JSON array ("), "{}", unfit("{"));
    }

    /// Can be neither read nor written, and quotes its value in the error.
    #[derive(Debug, PartialEq)]
    struct Quoting(&'static str);

    impl Serialize for Quoting {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom(self.0))
        }
    }

    impl<'de> serde::Deserialize<'de> for Quoting {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            Err(serde::de::Error::custom(String::deserialize(from)?))
        }
    }

    #[test]
    fn an_error_does_not_quote_the_stored_arguments() {
        let id = (argument::<u64>("id"),);
        let quoting = (argument::<Quoting>("quoting"),);
        let errors = [
            id.read(r#"["s3cret"]"#).map(|_| ()),
            id.read(r#"[{"s3cret": 1}]"#).map(|_| ()),
            id.read(r#""s3cret""#).map(|_| ()),
            id.read(r#"["s3cret"#).map(|_| ()),
            quoting.read(r#"["s3cret"]"#).map(|_| ()),
            quoting.write(&(Quoting("s3cret"),)).map(|_| ()),
        ];
        for error in errors {
            let error = error.expect_err("it does not fit");
            assert!(!error.contains("s3cret") && error.contains(" error at line "), "{error}");
        }
    }
}
