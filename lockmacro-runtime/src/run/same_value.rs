//! Whether a value is still the same after serde has written it and read it again.
//!
//! JSON cannot tell, as it writes `Some(NaN)`, `Some(None)` and `None` all as `null`. So the values
//! are compared as they are before that: as what they hand to a serializer. The order of lists and
//! maps does not count, because a set or a map is read with another one, and JSON itself never
//! changes it. What a value does not hand over, as a field that is skipped, is not seen.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

type Error = serde_json::Error;
type Digested = Result<u64, Error>;

/// Whether both hand the same to a serializer.
pub(crate) fn is_same<T: Serialize>(one: &T, other: &T) -> bool {
    matches!((digest(one), digest(other)), (Ok(one), Ok(other)) if one == other)
}

fn digest<T: Serialize + ?Sized>(value: &T) -> Digested {
    value.serialize(Digest)
}

fn hash(parts: impl Hash) -> Digested {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    Ok(hasher.finish())
}

/// A serializer that makes a hash.
struct Digest;

/// The hashes of the parts of a value, of which only the sum counts.
struct Parts {
    sum: u64,
    /// The name of the variant, or the kind of value.
    kind: &'static str,
    /// The hash of the key whose value is next.
    key: u64,
}

impl Parts {
    fn of(kind: &'static str) -> Result<Self, Error> {
        Ok(Self { sum: 0, kind, key: 0 })
    }

    fn add(&mut self, part: impl Hash) -> Result<(), Error> {
        self.sum = self.sum.wrapping_add(hash(part)?);
        Ok(())
    }
}

macro_rules! leaves {
    ($($method:ident($($name:ident: $type:ty),*) => $parts:expr;)*) => {
        $(fn $method(self, $($name: $type),*) -> Digested {
            hash((stringify!($method), $parts))
        })*
    };
}

macro_rules! compounds {
    ($($method:ident($($name:ident: $type:ty),*) -> $compound:ident of $kind:expr;)*) => {
        $(
            type $compound = Parts;
            fn $method(self, $($name: $type),*) -> Result<Parts, Error> {
                Parts::of($kind)
            }
        )*
    };
}

impl Serializer for Digest {
    type Ok = u64;
    type Error = Error;

    leaves! {
        serialize_bool(value: bool) => value;
        serialize_i8(value: i8) => value;
        serialize_i16(value: i16) => value;
        serialize_i32(value: i32) => value;
        serialize_i64(value: i64) => value;
        serialize_i128(value: i128) => value;
        serialize_u8(value: u8) => value;
        serialize_u16(value: u16) => value;
        serialize_u32(value: u32) => value;
        serialize_u64(value: u64) => value;
        serialize_u128(value: u128) => value;
        serialize_f32(value: f32) => value.to_bits();
        serialize_f64(value: f64) => value.to_bits();
        serialize_char(value: char) => value;
        serialize_str(value: &str) => value;
        serialize_bytes(value: &[u8]) => value;
        serialize_none() => ();
        serialize_unit() => ();
        serialize_unit_struct(name: &'static str) => name;
        serialize_unit_variant(_name: &'static str, nth: u32, _variant: &'static str) => nth;
    }

    compounds! {
        serialize_seq(_len: Option<usize>) -> SerializeSeq of "list";
        serialize_tuple(_len: usize) -> SerializeTuple of "tuple";
        serialize_tuple_struct(name: &'static str, _len: usize) -> SerializeTupleStruct of name;
        serialize_tuple_variant(
            _name: &'static str, _nth: u32, variant: &'static str, _len: usize
        ) -> SerializeTupleVariant of variant;
        serialize_map(_len: Option<usize>) -> SerializeMap of "map";
        serialize_struct(name: &'static str, _len: usize) -> SerializeStruct of name;
        serialize_struct_variant(
            _name: &'static str, _nth: u32, variant: &'static str, _len: usize
        ) -> SerializeStructVariant of variant;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Digested {
        hash(("some", digest(value)?))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Digested {
        digest(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        nth: u32,
        _: &'static str,
        value: &T,
    ) -> Digested {
        hash((nth, digest(value)?))
    }
}

macro_rules! parts {
    ($($compound:ident $method:ident($($key:ident: $type:ty)?);)*) => {
        $(impl $compound for Parts {
            type Ok = u64;
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $($key: $type,)?
                value: &T,
            ) -> Result<(), Error> {
                self.add(($($key,)? digest(value)?))
            }

            fn end(self) -> Digested {
                hash((self.kind, self.sum))
            }
        })*
    };
}

parts! {
    SerializeSeq serialize_element();
    SerializeTuple serialize_element();
    SerializeTupleStruct serialize_field();
    SerializeTupleVariant serialize_field();
    SerializeStruct serialize_field(key: &'static str);
    SerializeStructVariant serialize_field(key: &'static str);
}

impl SerializeMap for Parts {
    type Ok = u64;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = digest(key)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.add((self.key, digest(value)?))
    }

    fn end(self) -> Digested {
        hash((self.kind, self.sum))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap, HashSet};

    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Float(f64),
        Whole(i64),
    }

    #[derive(Serialize, Deserialize)]
    enum Mixed {
        Unit,
        New(Option<u8>),
        Named {
            at: (i8, char),
            #[serde(default)]
            price: Option<f32>,
        },
    }

    fn survives<T: Serialize + DeserializeOwned>(value: T) -> bool {
        let text = serde_json::to_string(&value).expect("it is JSON");
        serde_json::from_str(&text).is_ok_and(|read| is_same(&value, &read))
    }

    #[test]
    fn a_value_that_is_another_one_when_it_is_read_again_is_noticed() {
        assert!(!survives(Some(f64::NAN)) && !survives(Some(f32::INFINITY)));
        assert!(!survives(Some(None::<u8>)) && !survives(Some(())));
        assert!(!survives(BTreeMap::from([("price".to_owned(), Some(f64::NAN))])));
        assert!(!survives(Mixed::Named { at: (1, 'x'), price: Some(f32::NAN) }));
        assert!(!survives(Untagged::Whole(1)) && survives(Untagged::Float(1.5)));
    }

    #[test]
    fn values_that_survive_are_the_same_in_any_order_of_sets_and_maps() {
        let many: HashSet<u32> = (0..1000).collect();
        let named: HashMap<u64, HashSet<String>> =
            (0..100).map(|nth| (nth, (0..9).map(|nth| nth.to_string()).collect())).collect();
        assert!(survives(many) && survives(named));
        assert!(survives(vec![Mixed::Unit, Mixed::New(None), Mixed::New(Some(1))]));
        assert!(survives(Mixed::Named { at: (1, 'x'), price: Some(0.1) }));
        assert!(survives((0.1 + 0.2, -0.0, u128::MAX, i64::MIN, "a \"b\"".to_owned(), ())));
        assert!(survives(std::net::IpAddr::from([127, 0, 0, 1])));
        assert!(!is_same(&vec![1, 2], &vec![1, 3]) && !is_same(&"a", &"b"));
    }
}
