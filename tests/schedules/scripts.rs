//! The scripts as the engine sends them, and changed ones.

const QUEUE: &str = include_str!("../../lockmacro-runtime/src/backend/redis/scripts/queue.lua");
const ALONE: &str = include_str!("../../lockmacro-runtime/src/backend/redis/scripts/alone.lua");
const ACQUIRE: &str = concat!(
    include_str!("../../lockmacro-runtime/src/backend/redis/scripts/grant.lua"),
    include_str!("../../lockmacro-runtime/src/backend/redis/scripts/acquire.lua")
);
const RELEASE: &str = include_str!("../../lockmacro-runtime/src/backend/redis/scripts/release.lua");
const RENEW: &str = include_str!("../../lockmacro-runtime/src/backend/redis/scripts/renew.lua");

/// The scripts under test.
#[derive(Debug, Clone)]
pub struct Scripts {
    pub acquire: String,
    pub release: String,
    pub renew: String,
}

/// A file of the scripts.
#[derive(Debug, Clone, Copy)]
pub enum File {
    Alone,
    Queue,
    Acquire,
    Release,
    Renew,
}

impl Scripts {
    /// Those of the engine.
    pub fn real() -> Scripts {
        Scripts::of(ALONE, QUEUE, ACQUIRE, RELEASE, RENEW)
    }

    /// Those of the engine with a passage of one file replaced, which must occur there once.
    pub fn changed(file: File, old: &str, new: &str) -> Scripts {
        let change = |text: &str| {
            assert_eq!(text.matches(old).count(), 1, "a passage to replace: {old}");
            text.replace(old, new)
        };
        match file {
            File::Alone => Scripts::of(&change(ALONE), QUEUE, ACQUIRE, RELEASE, RENEW),
            File::Queue => Scripts::of(ALONE, &change(QUEUE), ACQUIRE, RELEASE, RENEW),
            File::Acquire => Scripts::of(ALONE, QUEUE, &change(ACQUIRE), RELEASE, RENEW),
            File::Release => Scripts::of(ALONE, QUEUE, ACQUIRE, &change(RELEASE), RENEW),
            File::Renew => Scripts::of(ALONE, QUEUE, ACQUIRE, RELEASE, &change(RENEW)),
        }
    }

    fn of(alone: &str, queue: &str, acquire: &str, release: &str, renew: &str) -> Scripts {
        Scripts {
            acquire: format!("{queue}{acquire}"),
            release: format!("{alone}{queue}{release}"),
            renew: renew.to_owned(),
        }
    }
}
