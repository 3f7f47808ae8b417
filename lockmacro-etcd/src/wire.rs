//! The encoding of protobuf, as far as the requests of [`crate::api`] and their answers need it.
//!
//! etcd's messages have a hundred fields, of which a lock uses thirty. Writing these by their
//! numbers takes less code than declaring them all, and needs neither `protoc` nor a crate.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// A message under construction. What is left out has the default value of its field.
#[derive(Debug, Default)]
pub(crate) struct Message(BytesMut);

impl Message {
    /// Adds a field that is a number, a bool or an enum.
    pub(crate) fn int(mut self, field: u32, value: i64) -> Self {
        self.varint(u64::from(field) << 3);
        self.varint(value.cast_unsigned());
        self
    }

    /// Adds a field that is a text, bytes or another message.
    pub(crate) fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.put_slice(value);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.put_u8(value as u8);
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A message that was received. A field that is missing has its default value, as protobuf says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answer(pub(crate) Bytes);

impl Answer {
    /// The field as a number.
    pub(crate) fn int(&self, field: u64) -> i64 {
        let number = |value| if let Value::Int(value) = value { Some(value) } else { None };
        self.each(field).filter_map(number).last().unwrap_or(0)
    }

    /// The field as bytes or a text.
    pub(crate) fn bytes(&self, field: u64) -> Bytes {
        self.get(field).unwrap_or_default().0
    }

    /// The field as a message, or the first of a repeated field, if it is there.
    pub(crate) fn get(&self, field: u64) -> Option<Answer> {
        let message =
            |value| if let Value::Bytes(value) = value { Some(Answer(value)) } else { None };
        self.each(field).find_map(message)
    }

    fn each(&self, field: u64) -> impl Iterator<Item = Value> {
        let mut rest = self.0.clone();
        let fields = std::iter::from_fn(move || next(&mut rest));
        fields.filter(move |(number, _)| *number == field).map(|(_, value)| value)
    }
}

enum Value {
    Int(i64),
    Bytes(Bytes),
}

/// Takes the first field off. `None` at the end, and where the bytes are no message.
fn next(rest: &mut Bytes) -> Option<(u64, Value)> {
    let tag = varint(rest)?;
    let value = match tag & 7 {
        0 => Value::Int(varint(rest)?.cast_signed()),
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Value::Bytes((length <= rest.len()).then(|| rest.split_to(length))?)
        }
        _ => return None,
    };
    Some((tag >> 3, value))
}

fn varint(rest: &mut Bytes) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = rest.try_get_u8().ok()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(message: Message) -> Answer {
        Answer(message.0.freeze())
    }

    #[test]
    fn what_is_written_is_read() {
        for number in [0, 1, 127, 128, 300, i64::MAX, -1, i64::MIN] {
            let inner = Message::default().int(16, number).bytes(2, b"key");
            let read = answer(Message::default().bytes(3, inner).int(1, 7)).get(3).unwrap();
            assert_eq!((read.int(16), read.bytes(2).as_ref()), (number, &b"key"[..]));
        }
    }

    #[test]
    fn it_is_encoded_as_protobuf_says() {
        let message = Message::default().int(1, 150).bytes(2, "testing");
        assert_eq!(message.as_ref(), b"\x08\x96\x01\x12\x07testing");
    }

    #[test]
    fn what_is_missing_or_cut_has_default_values() {
        let whole = answer(Message::default().bytes(1, "0123456789").int(2, 300));
        assert_eq!(whole.int(2), 300);
        for length in 0..whole.0.len() {
            let cut = Answer(whole.0.slice(..length));
            assert_eq!((cut.int(2), cut.get(9)), (0, None));
        }
        assert_eq!(Answer(Bytes::from_static(&[0xff; 32])).int(1), 0);
    }
}
