//! The scripts as the engine sends them, and changed ones.

macro_rules! files {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!(
            "../../../lockmacro-runtime/src/store/redis/scripts/", $file
        ))),+)
    };
}

/// Files of scripts, some with another one that never changes.
#[derive(Debug, Clone, Copy)]
pub enum File {
    ReleaseUnqueued,
    ReleaseUncontended,
    ReleaseShared,
    Queue,
    AcquireShared,
    Acquire,
    Release,
    Renew,
}

/// In the order of [`File`].
const FILES: [&str; 8] = [
    files!("release_unqueued.lua"),
    files!("release_uncontended.lua", "for_each_call.lua"),
    files!("release_shared.lua", "for_each_call.lua"),
    files!("queue.lua"),
    files!("acquire_shared.lua", "for_each_call.lua"),
    files!("grant.lua", "acquire.lua"),
    files!("release.lua"),
    files!("renew.lua"),
];

/// A script, as the engine calls it.
#[derive(Debug, Clone, Copy)]
pub enum Script {
    Acquire,
    ReleaseUncontended,
    Release,
    Renew,
    RenewShared,
    AcquireShared,
    ReleaseShared,
}

/// The scripts under test, in the order of [`Script`].
pub type Scripts = [String; 7];

/// Those of the engine.
pub fn real() -> Scripts {
    of(FILES.map(str::to_owned))
}

/// Those of the engine with a passage of one file replaced, which must occur there once.
pub fn changed(file: File, old: &str, new: &str) -> Scripts {
    let mut files = FILES.map(str::to_owned);
    let text = &mut files[file as usize];
    assert_eq!(text.matches(old).count(), 1, "a passage to replace: {old}");
    *text = text.replace(old, new);
    of(files)
}

fn of(files: [String; FILES.len()]) -> Scripts {
    let [unqueued, uncontended, release_shared, queue, acquire_shared, acquire, release, renew] =
        files;
    let (acquire, release) = (format!("{queue}{acquire}"), format!("{unqueued}{queue}{release}"));
    [acquire, uncontended, release, renew.clone(), renew, acquire_shared, release_shared]
}
