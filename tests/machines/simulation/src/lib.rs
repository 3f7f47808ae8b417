//! Locks of simulated processes and servers, in one thread and on virtual time.

#[cfg(all(feature = "processes", not(lockmacro_simulation), not(doc)))]
compile_error!("needs `--cfg lockmacro_simulation`, which RUSTFLAGS has replaced: add it there");

#[cfg_attr(not(feature = "processes"), allow(dead_code, reason = "the processes ask for it"))]
pub mod mutants;
#[cfg(feature = "processes")]
pub mod processes;
pub mod server;
#[cfg(feature = "processes")]
pub mod threads;
