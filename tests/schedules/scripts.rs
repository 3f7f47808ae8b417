//! The scripts as the engine sends them, and changed ones.

const QUEUE: &str = include_str!("../../lockmacro-runtime/src/store/redis/scripts/queue.lua");
const RELEASE_UNQUEUED: &str =
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/release_unqueued.lua");
const RELEASE_UNCONTENDED: &str = concat!(
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/release_uncontended.lua"),
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/for_each_call.lua")
);
const ACQUIRE_SHARED: &str = concat!(
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/acquire_shared.lua"),
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/for_each_call.lua")
);
const RELEASE_SHARED: &str = concat!(
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/release_shared.lua"),
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/for_each_call.lua")
);
const ACQUIRE: &str = concat!(
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/grant.lua"),
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/acquire.lua")
);
const RELEASE: &str = include_str!("../../lockmacro-runtime/src/store/redis/scripts/release.lua");
const RENEW: &str = include_str!("../../lockmacro-runtime/src/store/redis/scripts/renew.lua");

/// In the order of [`File`].
const FILES: [&str; 8] = [
    RELEASE_UNQUEUED,
    RELEASE_UNCONTENDED,
    RELEASE_SHARED,
    QUEUE,
    ACQUIRE_SHARED,
    ACQUIRE,
    RELEASE,
    RENEW,
];

/// The scripts under test.
#[derive(Debug, Clone)]
pub struct Scripts {
    pub acquire: String,
    pub acquire_shared: String,
    pub release_shared: String,
    pub release_uncontended: String,
    pub release: String,
    pub renew: String,
}

/// A file of the scripts.
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

impl Scripts {
    /// Those of the engine.
    pub fn real() -> Scripts {
        Scripts::of(FILES.map(str::to_owned))
    }

    /// Those of the engine with a passage of one file replaced, which must occur there once.
    pub fn changed(file: File, old: &str, new: &str) -> Scripts {
        let mut files = FILES.map(str::to_owned);
        let text = &mut files[file as usize];
        assert_eq!(text.matches(old).count(), 1, "a passage to replace: {old}");
        *text = text.replace(old, new);
        Scripts::of(files)
    }

    fn of(files: [String; FILES.len()]) -> Scripts {
        let [
            release_unqueued,
            release_uncontended,
            release_shared,
            queue,
            acquire_shared,
            acquire,
            release,
            renew,
        ] = files;
        Scripts {
            acquire: format!("{queue}{acquire}"),
            acquire_shared,
            release_shared,
            release_uncontended,
            release: format!("{release_unqueued}{queue}{release}"),
            renew,
        }
    }
}
