//! The scripts as the engine sends them, and changed ones.

const QUEUE: &str = include_str!("../../lockmacro-runtime/src/store/redis/scripts/queue.lua");
const ALONE: &str =
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/release_unqueued.lua");
const RELEASE_UNCONTENDED: &str =
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/release_uncontended.lua");
const ACQUIRE: &str = concat!(
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/grant.lua"),
    include_str!("../../lockmacro-runtime/src/store/redis/scripts/acquire.lua")
);
const RELEASE: &str = include_str!("../../lockmacro-runtime/src/store/redis/scripts/release.lua");
const RENEW: &str = include_str!("../../lockmacro-runtime/src/store/redis/scripts/renew.lua");

/// The scripts under test.
#[derive(Debug, Clone)]
pub struct Scripts {
    pub acquire: String,
    pub give_back: String,
    pub release: String,
    pub renew: String,
}

/// A file of the scripts.
#[derive(Debug, Clone, Copy)]
pub enum File {
    Alone,
    GiveBack,
    Queue,
    Acquire,
    Release,
    Renew,
}

impl Scripts {
    /// Those of the engine.
    pub fn real() -> Scripts {
        Scripts::of(ALONE, RELEASE_UNCONTENDED, QUEUE, ACQUIRE, RELEASE, RENEW)
    }

    /// Those of the engine with a passage of one file replaced, which must occur there once.
    pub fn changed(file: File, old: &str, new: &str) -> Scripts {
        let change = |text: &str| {
            assert_eq!(text.matches(old).count(), 1, "a passage to replace: {old}");
            text.replace(old, new)
        };
        match file {
            File::Alone => {
                Scripts::of(&change(ALONE), RELEASE_UNCONTENDED, QUEUE, ACQUIRE, RELEASE, RENEW)
            }
            File::GiveBack => {
                Scripts::of(ALONE, &change(RELEASE_UNCONTENDED), QUEUE, ACQUIRE, RELEASE, RENEW)
            }
            File::Queue => {
                Scripts::of(ALONE, RELEASE_UNCONTENDED, &change(QUEUE), ACQUIRE, RELEASE, RENEW)
            }
            File::Acquire => {
                Scripts::of(ALONE, RELEASE_UNCONTENDED, QUEUE, &change(ACQUIRE), RELEASE, RENEW)
            }
            File::Release => {
                Scripts::of(ALONE, RELEASE_UNCONTENDED, QUEUE, ACQUIRE, &change(RELEASE), RENEW)
            }
            File::Renew => {
                Scripts::of(ALONE, RELEASE_UNCONTENDED, QUEUE, ACQUIRE, RELEASE, &change(RENEW))
            }
        }
    }

    fn of(
        alone: &str,
        give_back: &str,
        queue: &str,
        acquire: &str,
        release: &str,
        renew: &str,
    ) -> Scripts {
        Scripts {
            acquire: format!("{queue}{acquire}"),
            give_back: give_back.to_owned(),
            release: format!("{alone}{queue}{release}"),
            renew: renew.to_owned(),
        }
    }
}
