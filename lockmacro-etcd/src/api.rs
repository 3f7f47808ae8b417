//! The requests of etcd's API that a lock needs, by the numbers that `rpc.proto` gives their fields.

use std::time::Duration;

use crate::wire::{Answer, Message};

/// A method, and what it is asked.
pub(crate) struct Request {
    pub(crate) path: &'static str,
    pub(crate) message: Message,
}

/// An operation in a transaction.
pub(crate) struct Operation {
    kind: u32,
    message: Message,
}

const RANGE: u32 = 1;
const PUT: u32 = 2;
const DELETE: u32 = 3;

fn new() -> Message {
    Message::default()
}

/// The revision of the store when it answered.
pub(crate) fn revision(answer: &Answer) -> i64 {
    answer.get(1).unwrap_or_default().int(3)
}

/// Whether the conditions of a transaction held.
pub(crate) fn succeeded(txn: &Answer) -> bool {
    txn.int(2) != 0
}

/// The answer to the first operation of a transaction, whatever its kind.
pub(crate) fn first(txn: &Answer) -> Option<Answer> {
    let answer = txn.get(3)?;
    [RANGE, PUT, DELETE].into_iter().find_map(|kind| answer.get(kind.into()))
}

/// A key with its value.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) created: i64,
    pub(crate) value: bytes::Bytes,
    pub(crate) lease: i64,
}

impl Entry {
    /// The first one in the answer to a range, or in that to a put or a deletion, which tell what
    /// was there before.
    pub(crate) fn of(answer: &Answer) -> Option<Entry> {
        // The second field of a deletion is a number.
        let kv = answer.get(2).or_else(|| answer.get(3))?;
        Some(Entry { created: kv.int(2), value: kv.bytes(5), lease: kv.int(6) })
    }
}

pub(crate) fn authenticate(name: &str, password: &str) -> Request {
    Request {
        path: "/etcdserverpb.Auth/Authenticate",
        message: new().bytes(1, name).bytes(2, password),
    }
}

pub(crate) fn grant(lease: i64, seconds: i64) -> Request {
    Request { path: "/etcdserverpb.Lease/LeaseGrant", message: new().int(1, seconds).int(2, lease) }
}

/// How long etcd keeps the lease that was granted or kept alive. `None` if there is no such lease.
pub(crate) fn ttl(answer: &Answer) -> Option<Duration> {
    let seconds = u64::try_from(answer.int(3)).ok().filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs)
}

pub(crate) fn keep_alive(lease: i64) -> Request {
    Request { path: "/etcdserverpb.Lease/LeaseKeepAlive", message: new().int(1, lease) }
}

pub(crate) fn revoke(lease: i64) -> Request {
    Request { path: "/etcdserverpb.Lease/LeaseRevoke", message: new().int(1, lease) }
}

pub(crate) fn time_to_live(lease: i64) -> Request {
    Request { path: "/etcdserverpb.Lease/LeaseTimeToLive", message: new().int(1, lease) }
}

/// Reads a key. Never serializable: a node that was cut off would answer with its past.
pub(crate) fn range(key: &[u8]) -> Request {
    Request { path: "/etcdserverpb.KV/Range", message: new().bytes(1, key) }
}

/// Carries out one operation if a condition holds, and another one if not.
pub(crate) fn txn(condition: Message, then: Operation, otherwise: Operation) -> Request {
    let one = |operation: Operation| new().bytes(operation.kind, operation.message);
    let message = new().bytes(1, condition).bytes(2, one(then)).bytes(3, one(otherwise));
    Request { path: "/etcdserverpb.KV/Txn", message }
}

/// Nobody holds the key.
pub(crate) fn is_absent(key: &[u8]) -> Message {
    const CREATE_REVISION: i64 = 1;
    new().int(2, CREATE_REVISION).bytes(3, key).int(5, 0)
}

/// The token holds the key.
pub(crate) fn is_held_by(key: &[u8], token: &str) -> Message {
    const VALUE: i64 = 3;
    new().int(2, VALUE).bytes(3, key).bytes(7, token)
}

/// The key has this lease, which is not zero: a key that is missing has the lease zero.
pub(crate) fn has_lease(key: &[u8], lease: i64) -> Message {
    const LEASE: i64 = 4;
    new().int(2, LEASE).bytes(3, key).int(8, lease)
}

pub(crate) fn read(key: &[u8]) -> Operation {
    Operation { kind: RANGE, message: new().bytes(1, key) }
}

/// Writes the key. The answer has the entry before.
pub(crate) fn put(key: &[u8], value: &str, lease: i64) -> Operation {
    Operation { kind: PUT, message: new().bytes(1, key).bytes(2, value).int(3, lease).int(4, 1) }
}

/// Removes the key. The answer has the entry before.
pub(crate) fn delete(key: &[u8]) -> Operation {
    Operation { kind: DELETE, message: new().bytes(1, key).int(3, 1) }
}

pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// Starts to watch a key for deletions after a revision.
pub(crate) fn watch(id: i64, key: &[u8], after: i64) -> Message {
    const NO_PUTS: i64 = 0;
    let create = new().bytes(1, key).int(3, after + 1).int(5, NO_PUTS).int(7, id);
    new().bytes(1, create)
}

pub(crate) fn unwatch(id: i64) -> Message {
    new().bytes(2, new().int(1, id))
}

pub(crate) fn watch_id(answer: &Answer) -> i64 {
    answer.int(2)
}

pub(crate) fn has_events(answer: &Answer) -> bool {
    answer.get(11).is_some()
}

/// Whether the revision that a watch begins with has been forgotten.
pub(crate) fn is_compacted(answer: &Answer) -> bool {
    answer.int(5) != 0
}
