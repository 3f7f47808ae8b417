//! An entry of a history.

use std::fmt;

use serde_json::{Map, Value, json};

/// What an entry says of its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It begins.
    Invoke,
    /// It has taken effect.
    Ok,
    /// It has had no effect.
    Fail,
    /// It may have taken effect, or will.
    Info,
}

/// What a process does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Function {
    /// Acquires a lock.
    Acquire,
    /// Works with what the lock protects.
    Use,
    /// Releases a lock, or has lost it.
    Release,
    /// Dies.
    Kill,
    /// Another one, which is not judged.
    Other(String),
}

/// An entry of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it says of its operation.
    pub kind: Kind,
    /// The operation.
    pub function: Function,
    /// The lock. Empty where all entries are of one lock.
    pub key: String,
    /// The fence of a grant.
    pub fence: Option<u64>,
    /// The end of the lease of a grant, in nanoseconds.
    pub until: Option<u64>,
    /// The process, which does one thing after the other.
    pub process: String,
    /// When it happened, in nanoseconds.
    pub time: u64,
    /// Why it failed, or more about it.
    pub error: Option<String>,
}

const KINDS: [(Kind, &str); 4] =
    [(Kind::Invoke, "invoke"), (Kind::Ok, "ok"), (Kind::Fail, "fail"), (Kind::Info, "info")];
const FUNCTIONS: [(Function, &str); 4] = [
    (Function::Acquire, "acquire"),
    (Function::Use, "use"),
    (Function::Release, "release"),
    (Function::Kill, "kill"),
];

fn name_of<T: PartialEq>(names: &[(T, &'static str)], of: &T) -> &'static str {
    names.iter().find(|(known, _)| known == of).map_or("", |(_, name)| name)
}

fn named<T: Clone>(names: &[(T, &'static str)], name: &str) -> Option<T> {
    names.iter().find(|(_, known)| *known == name).map(|(named, _)| named.clone())
}

impl Entry {
    /// An entry without a fence, a lease or an error.
    pub fn new(kind: Kind, function: Function, key: &str, process: &str, time: u64) -> Entry {
        let (key, process) = (key.to_owned(), process.to_owned());
        Entry { kind, function, key, fence: None, until: None, process, time, error: None }
    }

    /// The same entry with a fence.
    #[must_use]
    pub fn fence(self, fence: u64) -> Entry {
        Entry { fence: Some(fence), ..self }
    }

    /// The same entry with the end of a lease.
    #[must_use]
    pub fn until(self, until: u64) -> Entry {
        Entry { until: Some(until), ..self }
    }

    /// The same entry with an error.
    #[must_use]
    pub fn error(self, error: impl fmt::Display) -> Entry {
        Entry { error: Some(error.to_string()), ..self }
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut value = Map::from_iter([("key".to_owned(), json!(self.key))]);
        let numbers = [("fence", self.fence), ("until", self.until)];
        let numbers = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
        value.extend(numbers.map(|(name, number)| (name.to_owned(), json!(number))));
        let mut entry = json!({
            "type": name_of(&KINDS, &self.kind),
            "f": match &self.function {
                Function::Other(name) => name,
                known => name_of(&FUNCTIONS, known),
            },
            "value": value,
            "process": self.process,
            "time": self.time,
        });
        if let Some(error) = &self.error {
            entry["error"] = json!(error);
        }
        entry
    }

    /// Reads a map of either format; the error says what is wrong.
    pub(crate) fn from_json(entry: &Value) -> Result<Entry, String> {
        let (kind, function) = (text(entry, "type")?, text(entry, "f")?);
        let kind = named(&KINDS, &kind).ok_or_else(|| format!("the type {kind:?}"))?;
        let function = named(&FUNCTIONS, &function).unwrap_or(Function::Other(function));
        let time = number(entry, "time")?.ok_or("no time")?;
        let process = text(entry, "process")?;
        let error = entry.get("error").filter(|error| !error.is_null()).map(plain);
        let mut read = Entry { error, ..Entry::new(kind, function, "", &process, time) };
        match entry.get("value") {
            Some(value @ Value::Object(_)) => {
                read.key = value.get("key").map(plain).unwrap_or_default();
                (read.fence, read.until) = (number(value, "fence")?, number(value, "until")?);
            }
            // As in Jepsen's histories, where the value may be the fence.
            Some(value @ Value::Number(_)) => read.fence = value.as_u64(),
            _ => {}
        }
        Ok(read)
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn text(entry: &Value, name: &str) -> Result<String, String> {
    entry.get(name).map(plain).ok_or_else(|| format!("no {name}"))
}

/// The number of this name, if there is one.
fn number(entry: &Value, name: &str) -> Result<Option<u64>, String> {
    match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(format!("the {name} {value} is no number from 0 on")),
        },
    }
}
