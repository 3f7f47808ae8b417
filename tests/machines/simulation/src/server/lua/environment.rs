//! What a script can use.

use mlua::{Function, Lua, MultiValue, Table, Value};

use super::super::reply::Reply;
use super::convert::{single_field, to_lua, to_request};
use super::{call, with_core};

/// What Lua has itself. The rest is left out, as in Redis; so is what a simulation has no use for.
const GLOBALS: &str = "_VERSION assert collectgarbage error getmetatable ipairs math next pairs \
    pcall rawequal rawget rawset select setmetatable string table tonumber tostring type unpack \
    xpcall";
/// How far to look for the line of a script that raised an error.
const FRAMES: usize = 16;

/// The globals, the environment of scripts through which they see the globals, and the function
/// that runs a script.
pub(super) fn build(lua: &Lua) -> mlua::Result<(Table, Table, Function)> {
    let all = lua.globals();
    let globals = lua.create_table()?;
    for name in GLOBALS.split_whitespace() {
        globals.raw_set(name, all.raw_get::<Value>(name)?)?;
    }
    // Random numbers are not simulated.
    let math: Table = all.raw_get("math")?;
    math.raw_set("random", Value::Nil)?;
    math.raw_set("randomseed", Value::Nil)?;
    let native = lua.create_table()?;
    native.raw_set("call", lua.create_function(call_command)?)?;
    native.raw_set("error_reply", lua.create_function(error_reply)?)?;
    native.raw_set("may_run", lua.create_function(may_run)?)?;
    native.raw_set("place", lua.create_function(place)?)?;
    let code = lua.load(include_str!("environment.lua")).set_name("@environment.lua");
    let (environment, run) = code.call((native, globals.clone()))?;
    Ok((globals, environment, run))
}

fn call_command(lua: &Lua, arguments: MultiValue) -> mlua::Result<Value> {
    let failure = |text: &str| to_lua(lua, &Reply::Error(text.as_bytes().to_vec().into()));
    if arguments.is_empty() {
        return failure("ERR Please specify at least one argument for this redis lib call");
    }
    match to_request(&arguments) {
        Some(request) => to_lua(lua, &call(&request)),
        None => failure("ERR Lua redis lib command arguments must be strings or integers"),
    }
}

fn error_reply(lua: &Lua, text: mlua::String) -> mlua::Result<Value> {
    let text = text.as_bytes();
    let text = text.trim_ascii_end();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let coded = if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() };
    single_field(lua, "err", &coded)
}

/// Whether the user may run a command; `None` for an unknown one.
fn may_run(_: &Lua, arguments: MultiValue) -> mlua::Result<Option<bool>> {
    Ok(to_request(&arguments).and_then(|request| {
        let command = super::super::commands::command(request.first()?)?;
        Some(with_core(|core, _| !core.is_denied(command, &request)))
    }))
}

/// The source and the line of the script that has just raised an error.
fn place(lua: &Lua, (): ()) -> mlua::Result<(Option<String>, Option<String>)> {
    for level in 1..FRAMES {
        let found = lua.inspect_stack(level, |frame| {
            let source = frame.source().source?.into_owned();
            let line = frame.current_line()?;
            (source == "@user_script").then(|| (Some(source), Some(line.to_string())))
        });
        match found {
            None => break,
            Some(None) => {}
            Some(Some(place)) => return Ok(place),
        }
    }
    Ok((None, None))
}
