//! The arguments of a deferred function, and how they are stored.

use std::any::type_name;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::defer::nested_options::somes;

/// A value that can be an argument of a deferred function, because serde can store and read it.
///
/// It is there for every type that implements serde's `Serialize` and `DeserializeOwned`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored for a deferred call",
    label = "this argument is stored by serde until a worker calls the function",
    note = "derive serde's `Serialize` and `Deserialize` for the types of your own in it, or take what it is made from, such \
            as an id, and make it in the body"
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

/// An argument of a deferred function, by whose name errors are told.
pub fn argument<T: Storable>(name: &'static str) -> Argument<T> {
    Argument { name, write: write::<T>, read: read::<T> }
}

/// Writes what can be read again: some numbers are written as `null`, which is no number or a `None`.
fn write<T: Storable>(value: &T) -> Result<String, String> {
    let text =
        serde_json::to_string(value).map_err(|error| told("it cannot be written", &error))?;
    let again: T = read(&text).map_err(|error| format!("it cannot be read again: {error}"))?;
    match somes(&again) < somes(value) {
        true => Err("a `Some` of what is written as `null` would be read as `None`".to_owned()),
        false => Ok(text),
    }
}

fn read<T: Storable>(stored: &str) -> Result<T, String> {
    let no_such = |error| told(&format!("what is stored is no `{}`", type_name::<T>()), &error);
    serde_json::from_str(stored).map_err(no_such)
}

/// Without serde's own words, which quote what is stored: errors go where arguments must not.
fn told(what: &str, error: &serde_json::Error) -> String {
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

    fn read(&self, stored: &RawValue) -> Result<T, String> {
        (self.read)(stored.get()).map_err(|error| self.unfit(&error))
    }

    fn unfit(&self, error: &str) -> String {
        format!("`{}`: {error}", self.name)
    }
}

/// All arguments of a function: a tuple of up to 16 times [`argument`].
pub trait Arguments: Send + Sync + 'static + sealed::Sealed {
    /// What the function is called with, as a tuple.
    type Values;

    #[doc(hidden)]
    fn write(&self, values: &Self::Values) -> Result<String, String>;

    #[doc(hidden)]
    fn read(&self, stored: &str) -> Result<Self::Values, String>;
}

mod sealed {
    pub trait Sealed {}
}

/// What is stored of each argument.
fn parts<const COUNT: usize>(stored: &str) -> Result<[&RawValue; COUNT], String> {
    let no_list = |error| told("they are no JSON array", &error);
    let parts: Vec<&RawValue> = serde_json::from_str(stored).map_err(no_list)?;
    let count = parts.len();
    parts.try_into().map_err(|_| format!("it has {COUNT}, and {count} are stored"))
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
    fn what_is_written_is_read_again() {
        let none = ();
        assert_eq!(none.write(&()).as_deref(), Ok("[]"));
        assert_eq!(none.read("[]"), Ok(()));
        let two = (argument::<u128>("id"), argument::<Option<String>>("note"));
        let values = (u128::MAX, Some("a \"b\", [c]".to_owned()));
        let stored = two.write(&values).expect("it is JSON");
        assert_eq!(two.read(&stored), Ok(values));
    }

    #[test]
    fn a_number_is_read_as_it_was() {
        let price = (argument::<f64>("price"),);
        for value in [0.1 + 0.2, 31.245_270_191_439_438, f64::MIN_POSITIVE, -0.0, 1e300] {
            let stored = price.write(&(value,)).expect("it is JSON");
            let (read,) = price.read(&stored).expect("it is a number");
            assert_eq!(read.to_bits(), value.to_bits(), "{stored}");
        }
    }

    #[test]
    fn what_would_be_read_as_something_else_is_not_written() {
        let change = (argument::<Option<Option<String>>>("change"),);
        let to = Some(Some("note".to_owned()));
        assert_eq!(change.write(&(to,)).as_deref(), Ok(r#"["note"]"#));
        assert_eq!(change.write(&(None,)).as_deref(), Ok("[null]"));
        let refused = change.write(&(Some(None),)).expect_err("it is `None` on paper");
        assert!(refused.starts_with("`change`: a `Some` of what is"), "{refused}");

        let prices = (argument::<Vec<Option<f64>>>("prices"),);
        assert_eq!(prices.write(&(vec![Some(1.5), None],)).as_deref(), Ok("[[1.5,null]]"));
        assert!(prices.write(&(vec![Some(f64::NAN)],)).is_err());
        let price = (argument::<f64>("price"),);
        let refused = price.write(&(f64::NAN,)).expect_err("it is no number");
        assert!(refused.starts_with("`price`: it cannot be read again: what is"), "{refused}");
    }

    #[test]
    fn the_argument_that_does_not_fit_is_named() {
        let two = (argument::<u64>("id"), argument::<String>("note"));
        let unfit = |stored: &str| two.read(stored).expect_err("it does not fit");
        let note =
            "`note`: what is stored is no `alloc::string::String` (data error at line 1, column 1)";
        assert_eq!(unfit("[1,2]"), note);
        assert_eq!(unfit("[1]"), "it has 2, and 1 are stored");
        assert!(unfit("{").starts_with("they are no JSON array ("), "{}", unfit("{"));
    }

    /// Reads and writes nothing, and says why with all it has.
    #[derive(Debug, PartialEq)]
    struct Telling(&'static str);

    impl Serialize for Telling {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom(self.0))
        }
    }

    impl<'de> serde::Deserialize<'de> for Telling {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            Err(serde::de::Error::custom(String::deserialize(from)?))
        }
    }

    #[test]
    fn an_error_tells_nothing_of_what_is_stored() {
        let (id, telling) = ((argument::<u64>("id"),), (argument::<Telling>("telling"),));
        let errors = [
            id.read(r#"["s3cret"]"#).map(|_| ()),
            id.read(r#"[{"s3cret": 1}]"#).map(|_| ()),
            id.read(r#""s3cret""#).map(|_| ()),
            id.read(r#"["s3cret"#).map(|_| ()),
            telling.read(r#"["s3cret"]"#).map(|_| ()),
            telling.write(&(Telling("s3cret"),)).map(|_| ()),
        ];
        for error in errors {
            let error = error.expect_err("it does not fit");
            assert!(!error.contains("s3cret") && error.contains(" error at line "), "{error}");
        }
    }
}
