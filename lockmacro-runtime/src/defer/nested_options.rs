//! Counts the `Some`s in a value. JSON loses a `Some` around a value that is written as `null`,
//! such as `Some(None)`.

use std::fmt;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// The number of `Some`s in a value.
pub(crate) fn somes<T: Serialize>(value: &T) -> usize {
    let mut somes = Somes(0);
    // A value that fails here cannot be written, and so is never stored.
    let _ = value.serialize(&mut somes);
    somes.0
}

/// A serializer that counts `Some`s and writes nothing.
struct Somes(usize);

type Visited = Result<(), fmt::Error>;

/// Values that contain no others.
macro_rules! plain {
    ($($serialize:ident($($value:ty),*))*) => {
        $(fn $serialize(self, $(_: $value),*) -> Visited {
            Ok(())
        })*
    };
}

/// Values that contain others, and the trait that visits these.
macro_rules! nested {
    ($($serialize:ident($($value:ty),*) -> $Kind:ident)*) => {
        $(type $Kind = Self;)*
        $(fn $serialize(self, $(_: $value),*) -> Result<Self, fmt::Error> {
            Ok(self)
        })*
    };
}

macro_rules! parts {
    ($($Kind:ident: $($part:ident($($key:ty)?)),+;)*) => {
        $(impl $Kind for &mut Somes {
            type Ok = ();
            type Error = fmt::Error;
            $(fn $part<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Visited {
                value.serialize(&mut **self)
            })+
            fn end(self) -> Visited {
                Ok(())
            }
        })*
    };
}

type Name = &'static str;

impl Serializer for &mut Somes {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Visited {
        self.0 += 1;
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: Name, value: &T) -> Visited {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: Name,
        _: u32,
        _: Name,
        value: &T,
    ) -> Visited {
        value.serialize(self)
    }

    plain! {
        serialize_bool(bool)
        serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64)
        serialize_i128(i128)
        serialize_u8(u8) serialize_u16(u16) serialize_u32(u32) serialize_u64(u64)
        serialize_u128(u128)
        serialize_f32(f32) serialize_f64(f64) serialize_char(char) serialize_str(&str)
        serialize_bytes(&[u8]) serialize_none() serialize_unit() serialize_unit_struct(Name)
        serialize_unit_variant(Name, u32, Name)
    }

    nested! {
        serialize_seq(Option<usize>) -> SerializeSeq
        serialize_tuple(usize) -> SerializeTuple
        serialize_tuple_struct(Name, usize) -> SerializeTupleStruct
        serialize_tuple_variant(Name, u32, Name, usize) -> SerializeTupleVariant
        serialize_map(Option<usize>) -> SerializeMap
        serialize_struct(Name, usize) -> SerializeStruct
        serialize_struct_variant(Name, u32, Name, usize) -> SerializeStructVariant
    }
}

parts! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeMap: serialize_key(), serialize_value();
    SerializeStruct: serialize_field(Name);
    SerializeStructVariant: serialize_field(Name);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Order {
        note: Option<Wrapped>,
        prices: Vec<Option<f64>>,
        by: BTreeMap<String, (Option<u128>, Kind)>,
    }

    #[derive(Serialize, Deserialize)]
    struct Wrapped(Option<()>);

    #[derive(Serialize, Deserialize)]
    enum Kind {
        None,
        One(Option<u8>),
        Two(u8, Option<u8>),
        Named { text: Option<String> },
    }

    #[test]
    fn each_some_is_found_wherever_it_is() {
        let kinds = [
            Kind::None,
            Kind::One(Some(1)),
            Kind::Two(1, Some(2)),
            Kind::Named { text: Some("2".to_owned()) },
        ];
        let by = kinds.into_iter().zip(["a", "b", "c", "d"]);
        let order = Order {
            note: Some(Wrapped(Some(()))),
            prices: vec![None, Some(1.5), Some(f64::NAN)],
            by: by.map(|(kind, name)| (name.to_owned(), (Some(u128::MAX), kind))).collect(),
        };
        assert_eq!(somes(&order), 2 + 2 + 4 + 3);
        let text = serde_json::to_string(&order).expect("it is JSON");
        let read: Order = serde_json::from_str(&text).expect("it is an order");
        assert_eq!(somes(&read), 1 + 4 + 3, "without those around a unit and a NaN");
    }
}
