//! Replies, and how they are written in each version of the protocol.

use std::borrow::Cow;

use super::connection::Protocol;
use super::number::format_double;

/// A text that is mostly a constant.
pub(super) type Text = Cow<'static, [u8]>;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    /// The command has written its replies itself, or will do so later.
    None,
    Status(Text),
    Error(Text),
    Int(i64),
    Double(f64),
    Bulk(Vec<u8>),
    /// Text of the format `txt`.
    Verbatim(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Push(Vec<Reply>),
}

impl Reply {
    pub(super) const OK: Reply = Reply::status("OK");

    pub(super) const fn status(text: &'static str) -> Reply {
        Reply::Status(Cow::Borrowed(text.as_bytes()))
    }

    pub(super) fn bulk(bytes: impl AsRef<[u8]>) -> Reply {
        Reply::Bulk(bytes.as_ref().to_vec())
    }

    pub(super) fn or_null(bytes: Option<&Vec<u8>>) -> Reply {
        bytes.map_or(Reply::Null, |bytes| Reply::Bulk(bytes.clone()))
    }

    pub(super) fn int(count: usize) -> Reply {
        Reply::Int(count as i64)
    }

    pub(super) fn write(&self, to: &mut Vec<u8>, protocol: Protocol) {
        let resp3 = protocol == Protocol::Resp3;
        match self {
            Reply::None => {}
            Reply::Status(text) => line(to, b'+', text),
            Reply::Error(text) => line(to, b'-', text),
            Reply::Int(number) => number_line(to, b':', *number),
            Reply::Double(number) if resp3 => line(to, b',', format_double(*number).as_bytes()),
            Reply::Double(number) => bulk(to, b'$', format_double(*number).as_bytes()),
            Reply::Bulk(bytes) => bulk(to, b'$', bytes),
            Reply::Verbatim(text) if resp3 => bulk(to, b'=', &[b"txt:", &text[..]].concat()),
            Reply::Verbatim(text) => bulk(to, b'$', text),
            Reply::Null if resp3 => to.extend_from_slice(b"_\r\n"),
            Reply::Null => to.extend_from_slice(b"$-1\r\n"),
            Reply::Array(items) => all(to, b'*', items, protocol),
            Reply::Push(items) => all(to, if resp3 { b'>' } else { b'*' }, items, protocol),
            Reply::Map(pairs) => {
                let (kind, each) = if resp3 { (b'%', 1) } else { (b'*', 2) };
                number_line(to, kind, (pairs.len() * each) as i64);
                for (key, value) in pairs {
                    key.write(to, protocol);
                    value.write(to, protocol);
                }
            }
        }
    }
}

fn all(to: &mut Vec<u8>, kind: u8, items: &[Reply], protocol: Protocol) {
    number_line(to, kind, items.len() as i64);
    for item in items {
        item.write(to, protocol);
    }
}

fn line(to: &mut Vec<u8>, kind: u8, text: &[u8]) {
    to.push(kind);
    // A line break would end the reply.
    to.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    to.extend_from_slice(b"\r\n");
}

fn number_line(to: &mut Vec<u8>, kind: u8, number: i64) {
    line(to, kind, number.to_string().as_bytes());
}

fn bulk(to: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    number_line(to, kind, bytes.len() as i64);
    to.extend_from_slice(bytes);
    to.extend_from_slice(b"\r\n");
}

/// Why a command failed, as the client reads it: a code and a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault(pub(super) Text);

/// The reply to a command.
pub(super) type Answer = Result<Reply, Fault>;

impl Fault {
    pub(super) const SYNTAX: Fault = Fault::new("ERR syntax error");
    pub(super) const NOT_INTEGER: Fault = Fault::new("ERR value is not an integer or out of range");
    pub(super) const NOT_FLOAT: Fault = Fault::new("ERR value is not a valid float");
    pub(super) const WRONG_TYPE: Fault =
        Fault::new("WRONGTYPE Operation against a key holding the wrong kind of value");

    pub(super) const fn new(text: &'static str) -> Fault {
        Fault(Cow::Borrowed(text.as_bytes()))
    }

    pub(super) fn text(text: String) -> Fault {
        Fault(Cow::Owned(text.into_bytes()))
    }
}

impl From<Fault> for Reply {
    fn from(fault: Fault) -> Reply {
        Reply::Error(fault.0)
    }
}
