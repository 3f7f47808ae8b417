//! Re-exports the runtime, for the package `lockmacro-reexported-tests`.

pub use locks as lockmacro_runtime;
pub use locks::distributed_lock;
