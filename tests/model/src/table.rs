//! Which function or script does what an action of the model stands for.

/// An action, its file below `lockmacro-runtime/src`, and what is named there.
pub type Row = (&'static str, &'static str, &'static str);

/// A row for each place where an action happens. A test holds that they are there.
pub const TABLE: &[Row] = &[
    ("Ask", "engine/local_queue.rs", "fn arrive"),
    ("Ask", "engine/local_queue.rs", "fn ask_next"),
    ("Ask", "engine/line_request.rs", "async fn ask"),
    ("AskAgain", "store/tick.rs", "fn tick"),
    ("Renew", "engine/renewal.rs", "fn take_due"),
    ("Renew", "protocol/lease.rs", "fn wants_renewal"),
    ("Pass", "engine/local_queue.rs", "fn release"),
    ("Pass", "engine/turn.rs", "fn passes_to"),
    ("TakeUp", "engine/local_queue.rs", "fn poll"),
    ("TakeUp", "engine/turn.rs", "fn serves"),
    ("Release", "engine/held.rs", "fn pass_on"),
    ("Release", "engine/line_request.rs", "async fn release"),
    ("ReleaseAgain", "engine/cleanup.rs", "async fn release"),
    ("Drop", "engine/local_queue.rs", "fn leave"),
    ("Drop", "engine/place.rs", "fn leave"),
    ("Deliver(Ask)", "store/redis/scripts/acquire.lua", "local function join_queue"),
    ("Deliver(Ask)", "store/redis/scripts/acquire.lua", "local function grant"),
    ("Deliver(Release)", "store/redis/scripts/release.lua", "promote(ARGV[3], ARGV[4])"),
    ("Deliver(Release)", "store/redis/scripts/release_uncontended.lua", "local function release"),
    ("Deliver(Release)", "store/redis/scripts/queue.lua", "local function promote"),
    ("Deliver(Release)", "store/redis/scripts/queue.lua", "local function next_fences"),
    ("Deliver(Renew)", "store/redis/scripts/renew.lua", "'PEXPIRE', KEYS[1]"),
    ("Deliver(Grant)", "engine/line_request.rs", "fn granted"),
    ("Deliver(Grant)", "store/waiters.rs", "fn grant"),
    ("Deliver(Grant)", "store/abandoned.rs", "fn was_granted"),
    ("Tick", "protocol/lease.rs", "fn remaining"),
    ("Tick", "protocol/lease.rs", "fn end_of"),
    ("Redlock: Vote", "store/redlock/node.rs", "async fn vote"),
    ("Redlock: Choose", "protocol/quorum.rs", "fn won"),
    ("Redlock: Raise", "store/redlock/acquire.rs", "async fn raise"),
    ("Redlock: Raise", "store/redis/scripts/raise_fence.lua", "'SET', KEYS[2], ARGV[2]"),
    ("Redlock: Hold", "store/redlock/acquire.rs", "async fn confirmed"),
    ("Redlock: Leave", "store/redlock/release.rs", "async fn withdraw"),
    ("Redlock: Restart", "store/redlock/node.rs", "fn recognise"),
];
