//! Scripts of Redis in Lua 5.1.
//!
//! A thread has one interpreter, which all servers of the thread share: a script is compiled once
//! for a thread. While a script runs, its server is lent to the interpreter.

mod convert;
mod environment;

use std::cell::RefCell;
use std::collections::HashMap;

use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value};

use super::call::Caller;
use super::core::Core;
use super::reply::{Answer, Fault, Reply};

/// A script call: the server that is lent to the interpreter, and the client that asked.
struct Lent {
    core: Core,
    caller: Caller,
}

thread_local! {
    static LENT: RefCell<Option<Lent>> = const { RefCell::new(None) };
    static ENGINE: Engine = Engine::new().expect("an interpreter");
}

struct Engine {
    lua: Lua,
    /// What a script sees as globals, and may not change.
    globals: Table,
    environment: Table,
    /// Calls a script, and adds to an error where it was raised.
    run: Function,
    compiled: RefCell<HashMap<String, Function>>,
}

impl Engine {
    fn new() -> mlua::Result<Engine> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let (globals, environment, run) = environment::build(&lua)?;
        Ok(Engine { lua, globals, environment, run, compiled: RefCell::default() })
    }

    fn compile(&self, hash: &str, text: &[u8]) -> Result<Function, Fault> {
        if let Some(script) = self.compiled.borrow().get(hash) {
            return Ok(script.clone());
        }
        let text = without_tail_calls(text);
        let chunk = self.lua.load(text).set_name("@user_script");
        let chunk = chunk.set_mode(mlua::ChunkMode::Text).set_environment(self.environment.clone());
        let script = chunk.into_function().map_err(|error| {
            let text = match error {
                mlua::Error::SyntaxError { message, .. } => message,
                other => other.to_string(),
            };
            Fault::text(format!("ERR Error compiling script (new function): {text}"))
        })?;
        self.compiled.borrow_mut().insert(hash.to_owned(), script.clone());
        Ok(script)
    }

    /// Runs a script. The server is lent already.
    fn run(&self, script: Function, keys: &[Vec<u8>], args: &[Vec<u8>]) -> mlua::Result<Outcome> {
        self.globals.raw_set("KEYS", self.strings(keys)?)?;
        self.globals.raw_set("ARGV", self.strings(args)?)?;
        let (done, value): (bool, Value) = self.run.call(script)?;
        Ok(if done { Ok(convert::to_reply(&value, 0)) } else { Err(value) })
    }

    fn strings(&self, strings: &[Vec<u8>]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(strings.len(), 0)?;
        for (nth, string) in strings.iter().enumerate() {
            table.raw_set(nth + 1, self.lua.create_string(string)?)?;
        }
        Ok(table)
    }
}

/// A reply, or the value that was raised.
type Outcome = Result<Reply, Value>;

/// `return f()` is a tail call, which forgets the line that an error was raised in where `f` is
/// written in Lua, as it is here and not in Redis. `nil or f()` has the same value.
fn without_tail_calls(text: &[u8]) -> Vec<u8> {
    const TAIL: &[u8] = b"return redis.";
    let mut without = Vec::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(at) = rest.windows(TAIL.len()).position(|window| window == TAIL) {
        without.extend_from_slice(&rest[..at]);
        without.extend_from_slice(b"return nil or redis.");
        rest = &rest[at + TAIL.len()..];
    }
    without.extend_from_slice(rest);
    without
}

/// Whether a script compiles.
pub(super) fn check(hash: &str, text: &[u8]) -> Result<(), Fault> {
    ENGINE.with(|engine| engine.compile(hash, text)).map(drop)
}

/// Runs a script of this hash for a client.
pub(super) fn run(
    core: &mut Core,
    caller: Caller,
    (hash, text): (&str, &[u8]),
    keys: &[Vec<u8>],
    args: &[Vec<u8>],
) -> Answer {
    ENGINE.with(|engine| {
        let script = engine.compile(hash, text)?;
        core.has_written = false;
        let lent = Lent { core: std::mem::take(core), caller };
        LENT.set(Some(lent));
        let outcome = engine.run(script, keys, args);
        *core = LENT.take().expect("the interpreter returns the server").core;
        match outcome.map_err(|error| Fault::text(format!("ERR {error}")))? {
            Ok(reply) => Ok(reply),
            Err(raised) => Err(raised_by(hash, &raised)),
        }
    })
}

/// The error of a script, with the place that it was raised in.
fn raised_by(hash: &str, raised: &Value) -> Fault {
    let Value::Table(raised) = raised else { return Fault::new("ERR unknown error") };
    let text = |field| raised.raw_get::<Option<mlua::String>>(field).ok().flatten();
    let Some(message) = text("err") else { return Fault::new("ERR unknown error") };
    let mut fault = message.as_bytes().to_vec();
    if let (Some(source), Some(line)) = (text("source"), text("line")) {
        let place = format!(" script: {hash}, on {}:{}.", source.display(), line.display());
        fault.extend_from_slice(place.as_bytes());
    }
    Fault(fault.into())
}

/// Has a command of a script run by the server.
fn call(request: &[Vec<u8>]) -> Reply {
    with_core(|core, caller| core.call_of_script(caller, request))
}

fn with_core<T>(work: impl FnOnce(&mut Core, Caller) -> T) -> T {
    LENT.with_borrow_mut(|lent| {
        let Lent { core, caller } = lent.as_mut().expect("a server is lent while a script runs");
        work(core, *caller)
    })
}
