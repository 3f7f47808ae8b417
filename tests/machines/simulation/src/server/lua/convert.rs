//! Values of Lua and replies, as Redis converts them.

use mlua::{Lua, MultiValue, Table, Value};

use super::super::number::format_double;
use super::super::reply::Reply;

/// Deeper replies are refused.
const DEEPEST: usize = 1_000;

/// The arguments of a command. `None` where one is neither a string nor a number.
pub(super) fn to_request(arguments: &MultiValue) -> Option<Vec<Vec<u8>>> {
    let argument = |value: &Value| match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(number) => Some(format_double(*number as f64).into_bytes()),
        Value::Number(number) => Some(format_double(*number).into_bytes()),
        _ => None,
    };
    arguments.iter().map(argument).collect()
}

/// The reply of a command, for the script that called it.
pub(super) fn to_lua(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Int(number) => Value::Number(*number as f64),
        Reply::Bulk(bytes) | Reply::Verbatim(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Double(number) => Value::String(lua.create_string(format_double(*number))?),
        Reply::Null | Reply::None => Value::Boolean(false),
        Reply::Status(text) => single_field(lua, "ok", text)?,
        Reply::Error(text) => single_field(lua, "err", text)?,
        Reply::Array(items) | Reply::Push(items) => Value::Table(array(lua, items.iter())?),
        Reply::Map(pairs) => {
            Value::Table(array(lua, pairs.iter().flat_map(|(key, value)| [key, value]))?)
        }
    })
}

fn array<'a>(lua: &Lua, items: impl Iterator<Item = &'a Reply>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (nth, item) in items.enumerate() {
        table.raw_set(nth + 1, to_lua(lua, item)?)?;
    }
    Ok(table)
}

pub(super) fn single_field(lua: &Lua, field: &str, text: &[u8]) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// What a script has returned, for the client.
pub(super) fn to_reply(value: &Value, depth: usize) -> Reply {
    match value {
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(*number as i64),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(_) if depth > DEEPEST => {
            Reply::Error(b"ERR reached lua stack limit"[..].into())
        }
        Value::Table(table) => table_to_reply(table, depth),
        _ => Reply::Null,
    }
}

fn table_to_reply(table: &Table, depth: usize) -> Reply {
    let text = |field| match table.raw_get(field) {
        Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
        _ => None,
    };
    if let Some(error) = text("err") {
        return Reply::Error(error.into());
    }
    if let Some(status) = text("ok") {
        return Reply::Status(status.into());
    }
    let mut items = Vec::new();
    while let Ok(item) = table.raw_get::<Value>(items.len() + 1)
        && !item.is_nil()
    {
        items.push(to_reply(&item, depth + 1));
    }
    Reply::Array(items)
}
