//! The keys of a server, their values and when they expire.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::reply::Fault;
use super::sorted_set::SortedSet;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    String(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    SortedSet(SortedSet),
    List(VecDeque<Vec<u8>>),
}

impl Value {
    /// The name of its type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::String(_) => "string",
            Value::Hash(_) => "hash",
            Value::SortedSet(_) => "zset",
            Value::List(_) => "list",
        }
    }

    /// Whether nothing is left of a collection, whose key is then deleted.
    fn is_empty(&self) -> bool {
        match self {
            Value::String(_) => false,
            Value::Hash(fields) => fields.is_empty(),
            Value::SortedSet(members) => members.len() == 0,
            Value::List(items) => items.is_empty(),
        }
    }
}

/// A type of values that a key can hold.
pub(super) trait Kind: Default + Sized {
    fn wrap(self) -> Value;
    fn read(value: &Value) -> Option<&Self>;
    fn change(value: &mut Value) -> Option<&mut Self>;
}

macro_rules! kind {
    ($type:ty, $variant:ident) => {
        impl Kind for $type {
            fn wrap(self) -> Value {
                Value::$variant(self)
            }

            fn read(value: &Value) -> Option<&Self> {
                if let Value::$variant(value) = value { Some(value) } else { None }
            }

            fn change(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant(value) = value { Some(value) } else { None }
            }
        }
    };
}

kind!(Vec<u8>, String);
kind!(BTreeMap<Vec<u8>, Vec<u8>>, Hash);
kind!(SortedSet, SortedSet);
kind!(VecDeque<Vec<u8>>, List);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// In milliseconds since 1970; `None` for never.
    pub(super) expires: Option<u64>,
}

/// The keys. They expire when they are looked at, as if nobody had seen them before.
#[derive(Debug, Clone, Default)]
pub(super) struct Keyspace {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// The keys that have changed since they were last asked for.
    changed: BTreeSet<Vec<u8>>,
    /// The server's clock in milliseconds, which stands still during a command or a script.
    pub(super) now: u64,
}

impl Keyspace {
    /// A key that has not expired.
    pub(super) fn entry(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| self.is_alive(entry))
    }

    fn is_alive(&self, entry: &Entry) -> bool {
        entry.expires.is_none_or(|at| at >= self.now)
    }

    /// The value of a key, which has to be of this type.
    pub(super) fn get<K: Kind>(&self, key: &[u8]) -> Result<Option<&K>, Fault> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        K::read(&entry.value).map(Some).ok_or(Fault::WRONG_TYPE)
    }

    /// Changes the value of a key, if it is there. An emptied collection is deleted.
    pub(super) fn update<K: Kind, T>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut K) -> T,
    ) -> Result<Option<T>, Fault> {
        self.forget_expired(key);
        let Some(entry) = self.entries.get_mut(key) else { return Ok(None) };
        let changed = change(K::change(&mut entry.value).ok_or(Fault::WRONG_TYPE)?);
        if entry.value.is_empty() {
            self.entries.remove(key);
        }
        self.note(key);
        Ok(Some(changed))
    }

    /// Changes the value of a key, or an empty one where there is none.
    pub(super) fn update_or_create<K: Kind, T>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut K) -> T,
    ) -> Result<T, Fault> {
        self.forget_expired(key);
        if !self.entries.contains_key(key) {
            self.put(key, K::default().wrap(), None);
        }
        let entry = self.entries.get_mut(key).ok_or(Fault::WRONG_TYPE)?;
        let changed = change(K::change(&mut entry.value).ok_or(Fault::WRONG_TYPE)?);
        self.note(key);
        Ok(changed)
    }

    /// Sets a key, whatever it held.
    pub(super) fn put(&mut self, key: &[u8], value: Value, expires: Option<u64>) {
        self.entries.insert(key.to_vec(), Entry { value, expires });
        self.note(key);
    }

    /// Deletes a key; returns whether it was there.
    pub(super) fn delete(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        self.note(key);
        self.is_alive(&entry)
    }

    /// Changes when a key expires, which must be there. A time that has passed deletes it.
    pub(super) fn expire(&mut self, key: &[u8], at: u64) {
        if at <= self.now {
            self.entries.remove(key);
        } else if let Some(entry) = self.entries.get_mut(key) {
            entry.expires = Some(at);
        }
        self.note(key);
    }

    pub(super) fn clear(&mut self) {
        let keys = std::mem::take(&mut self.entries).into_keys();
        self.changed.extend(keys);
    }

    /// A key, also if it has expired and was not looked at since.
    pub(super) fn stored(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Makes a key what it is on the primary.
    pub(super) fn restore(&mut self, key: &[u8], entry: Option<Entry>) {
        match entry {
            Some(entry) => drop(self.entries.insert(key.to_vec(), entry)),
            None => drop(self.entries.remove(key)),
        }
    }

    pub(super) fn take_changed(&mut self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut self.changed)
    }

    fn note(&mut self, key: &[u8]) {
        if !self.changed.contains(key) {
            self.changed.insert(key.to_vec());
        }
    }

    /// The keys in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        let alive = self.entries.iter().filter(|(_, entry)| self.is_alive(entry));
        alive.map(|(key, entry)| (key.as_slice(), entry))
    }

    fn forget_expired(&mut self, key: &[u8]) {
        if self.entries.get(key).is_some_and(|entry| !self.is_alive(entry)) {
            self.entries.remove(key);
            self.note(key);
        }
    }
}
