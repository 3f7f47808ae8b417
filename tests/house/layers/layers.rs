//! The sources of the runtime lie in rooms, one above the other: a file uses files of its own room
//! and of the rooms below it. In both crates no files use each other in a circle. In the runtime
//! one file reads clocks, one draws random numbers, one connects to servers, and one spawns tasks.
//! What differs between systems, such as the clock of leases, is in one more.

mod imports;
mod system;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use imports::Imports;

/// From the top down. A room is a folder or some files; the longest path that fits a file decides.
const ROOMS: &[(&str, &[&str])] = &[
    (
        "what to lock",
        &[
            "axum.rs",
            "guide.rs",
            "expansion.rs",
            "lock.rs",
            "run/",
            "inspect/",
            "testing.rs",
            "testing/",
            "defer/",
            "reuse/",
        ],
    ),
    ("manager", &["guard.rs", "outcome.rs", "run_policy.rs", "manager/"]),
    ("acquire", &["engine/acquire/"]),
    ("lease", &["engine/lease/"]),
    ("the lock of a task", &["engine/current.rs", "engine/manager.rs"]),
    ("queue", &["engine/queue/"]),
    ("core", &["engine/core.rs", "engine/token/acquisition.rs"]),
    ("token and thread", &["engine/token/", "engine/thread/"]),
    ("engine", &["engine/"]),
    ("queues of jobs", &["defer/jobs.rs", "defer/queue/"]),
    (
        "store",
        &["store/handle.rs", "store/mod.rs", "store/replica_acks.rs", "store/several_keys.rs"],
    ),
    ("redlock", &["store/redlock/"]),
    ("redis", &["store/redis/"]),
    ("topology", &["store/redis/topology/"]),
    ("client", &["store/redis/client/"]),
    ("postgres", &["store/postgres/"]),
    ("postgres client", &["store/postgres/client/"]),
    ("memory", &["store/memory.rs"]),
    ("stores of others", &["store/lock_store/"]),
    ("remote", &["store/remote/"]),
    ("what stores share", &["store/"]),
    ("jobs", &["defer/job.rs", "defer/job_queue.rs", "defer/limits.rs", "defer/queue/memory.rs"]),
    ("values beside locks", &["reuse/held.rs"]),
    ("protocol", &["protocol/"]),
    ("value", &["value/"]),
    ("system", &["sys/"]),
];

type Arrows<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The longest place that a file is in decides.
fn room(file: &str) -> Option<usize> {
    let places = ROOMS
        .iter()
        .enumerate()
        .flat_map(|(room, (_, places))| places.iter().map(move |place| (place, room)));
    let around = places.filter(|(place, _)| file.starts_with(**place));
    around.max_by_key(|(place, _)| place.len()).map(|(_, room)| room)
}

/// The runtime, and the macro.
const CRATES: [&str; 2] = ["lockmacro-runtime", "lockmacro"];

/// What only some files may use, so that a simulation can replace it: paths, by their beginnings.
const SYSTEM: &[(&[&str], &[&str])] = &[
    (
        &["sys/platform.rs", "sys/time.rs"],
        &[
            "rustix::time",
            "std::time::Instant",
            "std::time::SystemTime::now",
            "tokio::time::Instant",
        ],
    ),
    (&["sys/time.rs"], &["crate::sys::platform::since_boot"]),
    (
        &["sys/parking.rs"],
        &["std::thread::park", "std::thread::park_timeout", "std::thread::sleep"],
    ),
    (
        &["sys/random.rs"],
        &[
            "fastrand",
            "getrandom",
            // Each table of these draws the numbers that it hashes by.
            "std::collections::HashMap",
            "std::collections::HashSet",
            "std::collections::hash_map::RandomState",
            "std::hash::RandomState",
        ],
    ),
    (
        &["store/redis/client/stream.rs", "sys/platform.rs"],
        &[
            ".get_async_monitor",
            ".get_async_pubsub",
            ".get_connection",
            ".get_connection_with_timeout",
            ".get_multiplexed_async_connection",
            ".get_multiplexed_async_connection_with_config",
            "std::net",
            "std::os::unix::net",
            "tokio::net",
        ],
    ),
    (
        &["sys/task.rs"],
        &[
            "tokio::spawn",
            "tokio::task::JoinSet",
            "tokio::task::spawn",
            "tokio::task::spawn_local",
            "tokio_util",
        ],
    ),
];

fn root(of_crate: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(of_crate).join("src")
}

fn sources(of_crate: &str) -> Imports {
    Imports::read(&root(of_crate))
}

/// The files that use each other in a circle, a group a circle.
fn circles<'a>(arrows: &Arrows<'a>) -> Vec<Vec<&'a str>> {
    let reachable = |from: &'a str| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<_> = arrows[from].iter().copied().collect();
        while let Some(file) = open.pop() {
            if seen.insert(file) {
                open.extend(&arrows[file]);
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = arrows.keys().map(|file| (*file, reachable(file))).collect();
    let mut groups = BTreeSet::new();
    for (file, seen) in &reached {
        let group: Vec<_> = seen.iter().filter(|o| reached[*o].contains(file)).copied().collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

/// Each file of the fixture reaches `high.rs` in a way of its own, but for one that is a test.
#[test]
fn an_import_is_seen_however_it_is_written() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("layers/fixture");
    let imports = Imports::read(&fixture);
    let arrows = imports.arrows();
    let low = ["by_macro", "by_module", "by_reexport", "inline"];
    for file in low.map(|name| format!("low/{name}.rs")) {
        assert!(arrows[&*file].contains("high.rs"), "{file} -> {:?}", arrows[&*file]);
    }
    assert!(arrows["low/skipped.rs"].is_empty(), "{:?}", arrows["low/skipped.rs"]);
    assert_eq!(circles(&arrows), [["first.rs", "second.rs"]]);
}

#[test]
fn every_file_has_a_room() {
    let imports = sources(CRATES[0]);
    let arrows = imports.arrows();
    assert!(arrows.len() > 100, "only {} files were read", arrows.len());
    let without: Vec<_> = arrows.keys().filter(|file| room(file).is_none()).collect();
    assert!(without.is_empty(), "in no room of `ROOMS`: {without:#?}");
}

#[test]
fn no_file_uses_a_room_above_it() {
    let imports = sources(CRATES[0]);
    let mut upward = Vec::new();
    for (file, used) in imports.arrows() {
        for other in used {
            if room(other) < room(file) {
                upward.push(format!("{file} -> {other}"));
            }
        }
    }
    assert!(upward.is_empty(), "{} arrows go up: {upward:#?}", upward.len());
}

/// Stores that know nothing of each other. Redlock is one of several Redis servers.
const APART: [&str; 4] = ["memory", "postgres", "redis", "stores of others"];

#[test]
fn no_store_uses_another_one() {
    let of = |file: &str| room(file).map(|room| ROOMS[room].0);
    let store = |file: &str| match of(file) {
        Some("topology" | "client" | "redlock") => Some("redis"),
        Some("postgres client") => Some("postgres"),
        of => APART.into_iter().find(|store| of == Some(store)),
    };
    let imports = sources(CRATES[0]);
    let mut used = Vec::new();
    for (file, others) in imports.arrows() {
        let others = others
            .into_iter()
            .filter(|o| store(o).is_some_and(|of| store(file).is_some_and(|own| own != of)));
        used.extend(others.map(|other| format!("{file} -> {other}")));
    }
    assert!(used.is_empty(), "{used:#?}");
}

/// The features that are a folder of their own, and the arrows from elsewhere that lead into it.
const SLICES: &[(&str, &[&str])] = &[
    (
        "defer/",
        &[
            // What a manager keeps for its jobs, and what is kept beside locks in memory.
            "engine/core.rs -> defer/jobs.rs",
            "manager/builder.rs -> defer/jobs.rs",
            "store/memory.rs -> defer/queue/memory.rs",
            // The functions that have jobs, and the rights that jobs need.
            "inspect/job_functions.rs -> defer/queue/redis/requests.rs",
            "inspect/redis/rights.rs -> defer/queue/redis/requests.rs",
            "inspect/redis/rights.rs -> defer/queue/redis/scripts.rs",
        ],
    ),
    ("inspect/", &[]),
    (
        "reuse/",
        &[
            // What callers of a queue know of a value, and what stores hold for them.
            "engine/queue/shared_queue.rs -> reuse/held.rs",
            "store/memory.rs -> reuse/held.rs",
            "store/postgres/store.rs -> reuse/held.rs",
        ],
    ),
];

#[test]
fn a_slice_is_known_outside_of_its_folder_by_a_few_lines() {
    let imports = sources(CRATES[0]);
    for (slice, known) in SLICES {
        let mut found = Vec::new();
        for (file, used) in imports.arrows() {
            let used = used.into_iter().filter(|other| other.starts_with(slice));
            let used = used.filter(|_| !file.starts_with(slice));
            found.extend(used.map(|other| format!("{file} -> {other}")));
        }
        let mut known = known.to_vec();
        known.sort_unstable();
        assert_eq!(found, known, "{slice}");
    }
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    for of_crate in CRATES {
        let imports = sources(of_crate);
        let arrows = imports.arrows();
        let used: usize = arrows.values().map(BTreeSet::len).sum();
        assert!(used > arrows.len(), "{of_crate}: only {used} imports were read");
        let mut within = Vec::new();
        for group in circles(&arrows) {
            for file in &group {
                let others: Vec<_> = arrows[file].iter().filter(|o| group.contains(o)).collect();
                within.push(format!("{file} -> {others:?}"));
            }
            within.push(String::new());
        }
        assert!(within.is_empty(), "{of_crate}: {within:#?}");
    }
}

/// The uses of the system in a file that may not use it so.
fn uses_of_system(root: &Path, file: &str) -> Vec<String> {
    let forbidden = SYSTEM.iter().filter(|(owners, _)| !owners.contains(&file));
    let forbidden: Vec<_> = forbidden.flat_map(|(_, paths)| *paths).collect();
    let mut paths = system::paths(&root.join(file));
    paths.retain(|path| forbidden.iter().any(|start| is_within(path, start)));
    paths
}

/// Whether a path is this one, or continues it.
fn is_within(path: &str, start: &str) -> bool {
    path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[test]
fn a_use_of_the_system_is_seen_however_it_is_written() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("layers/fixture");
    let mut seen = uses_of_system(&fixture, "system.rs");
    seen.sort();
    seen.dedup();
    let expected = [
        ".get_connection",
        "fastrand::f64",
        "std::collections::HashMap",
        "std::collections::HashMap::new",
        "std::time::Instant::now",
        "std::time::SystemTime::now",
        "tokio::net",
        "tokio::net::TcpStream::connect",
        "tokio::spawn",
        "tokio::task::JoinSet",
        "tokio::task::JoinSet::new",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn clocks_randomness_streams_and_tasks_come_from_one_file_each() {
    let (root, imports) = (root(CRATES[0]), sources(CRATES[0]));
    let mut told = Vec::new();
    for file in imports.files() {
        told.extend(uses_of_system(&root, file).into_iter().map(|path| format!("{file}: {path}")));
    }
    assert!(told.is_empty(), "take these from `SYSTEM`'s files: {told:#?}");
    for (owners, paths) in SYSTEM {
        for file in *owners {
            let used = system::paths(&root.join(file));
            let is_used = used.iter().any(|path| paths.iter().any(|p| is_within(path, p)));
            assert!(is_used, "{file} is read, and uses nothing of {paths:?}");
        }
    }
}

/// Every time and every random number is an argument there.
#[test]
fn values_and_rules_neither_read_a_clock_nor_draw_nor_wait() {
    let root = root(CRATES[0]);
    let apart = [
        ("value/", &["crate::sys", "tokio", "serde_json"][..]),
        (
            "protocol/",
            &[
                "crate::sys::random",
                "crate::sys::task",
                "crate::sys::time::Instant",
                "crate::sys::time::Moment::now",
                "tokio",
            ],
        ),
    ];
    let imports = sources(CRATES[0]);
    let mut told = Vec::new();
    for (room, forbidden) in apart {
        let files: Vec<_> = imports.files().filter(|file| file.starts_with(room)).collect();
        assert!(files.len() >= 4, "{room}: {files:?}");
        for file in files {
            let mut paths = system::paths(&root.join(file));
            paths.retain(|path| forbidden.iter().any(|start| is_within(path, start)));
            told.extend(paths.into_iter().map(|path| format!("{file}: {path}")));
        }
    }
    assert!(told.is_empty(), "{told:#?}");
}

/// Most files of a folder: a reader sees it at one glance.
const FILES: usize = 18;

#[test]
fn a_folder_has_few_files() {
    let mut open = vec![root(CRATES[0])];
    let mut full = Vec::new();
    while let Some(folder) = open.pop() {
        let entries: Vec<_> = std::fs::read_dir(&folder).expect("a folder").flatten().collect();
        let is_folder = |entry: &&std::fs::DirEntry| entry.path().is_dir();
        open.extend(entries.iter().filter(is_folder).map(|entry| entry.path()));
        let files = entries.iter().filter(|entry| !is_folder(entry)).count();
        if files > FILES {
            full.push(format!("{}: {files}", folder.display()));
        }
    }
    assert!(full.is_empty(), "more than {FILES} files: {full:#?}");
}

#[test]
fn one_file_asks_for_which_system_it_is_built() {
    let asks = ["cfg(unix", "cfg(windows", "cfg!(unix", "cfg!(windows", "not(unix", "target_os"];
    let root = root(CRATES[0]);
    let asking = |file: &&str| {
        let text = std::fs::read_to_string(root.join(file)).expect(file);
        // Tests may.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        asks.iter().any(|ask| code.contains(ask))
    };
    let imports = sources(CRATES[0]);
    let found: Vec<_> = imports.files().filter(asking).collect();
    assert_eq!(found, ["sys/platform.rs"]);
}
