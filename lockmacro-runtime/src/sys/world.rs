//! The system of a simulation: its clocks, randomness and network.

use std::io;
use std::pin::Pin;
use std::task::Waker;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// The system of simulated processes that run as tasks of one runtime of one thread, whose clock is
/// paused.
pub trait World: Send + Sync {
    /// The time since boot, which leases are counted by. Timers go by tokio's clock.
    #[cfg(feature = "test-util")]
    fn since_boot(&self) -> Duration;

    /// The date and time, since 1970.
    #[cfg(feature = "test-util")]
    fn since_1970(&self) -> Duration;

    /// The next 64 random bits.
    fn random(&self) -> u64;

    /// Makes a task one of the process that is running.
    fn adopt(&self, task: Task) -> Task;

    /// Lets another simulated thread go on, if there are threads. Returns whether there are.
    fn switch(&self) -> bool {
        false
    }

    /// A waker of the thread that blocks, while it is parked.
    fn unparks_here(&self) -> Waker;

    /// Blocks the thread until it is unparked, for this time at most.
    fn park(&self, longest: Duration);

    /// Opens a stream to the server at `address`: `host:port`, or the path of a socket.
    fn open(&self, address: &str) -> Opening;
}

/// A stream of bytes to a server and from it.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync {}

impl<S: AsyncRead + AsyncWrite + Send + Sync> Stream for S {}

/// A task of a process.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A stream that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = io::Result<Pin<Box<dyn Stream>>>> + Send>>;

/// The world that this thread is in: none in a program of a user. A thread can enter one only where
/// the compiler has the flag `--cfg lockmacro_simulation`, as in this workspace. So no crate of a
/// build can replace clocks or randomness by a feature.
#[cfg(not(all(lockmacro_simulation, feature = "test-util")))]
pub(crate) const fn current() -> Option<std::sync::Arc<dyn World>> {
    None
}

/// A point at which another thread may go on, where threads are simulated. Returns whether they
/// are.
pub(crate) fn switch() -> bool {
    current().is_some_and(|world| world.switch())
}

#[cfg(all(lockmacro_simulation, feature = "test-util"))]
pub(crate) use entered::current;
#[cfg(all(lockmacro_simulation, feature = "test-util"))]
pub use entered::{Entered, enter};

#[cfg(all(lockmacro_simulation, feature = "test-util"))]
mod entered {
    use std::cell::RefCell;
    use std::sync::Arc;

    use crate::sys::world::World;

    thread_local! {
        static WORLD: RefCell<Option<Arc<dyn World>>> = const { RefCell::new(None) };
    }

    /// Puts this thread into a world, until the returned value is dropped.
    pub fn enter(world: Arc<dyn World>) -> Entered {
        Entered(WORLD.replace(Some(world)))
    }

    /// The stay of a thread in a world. Dropping it returns to the world before.
    #[must_use = "dropping it leaves the world"]
    pub struct Entered(Option<Arc<dyn World>>);

    impl Drop for Entered {
        fn drop(&mut self) {
            let before = self.0.take();
            // A thread that ends has no world any more.
            let _ = WORLD.try_with(|world| drop(world.replace(before)));
        }
    }

    /// The world that this thread is in.
    pub(crate) fn current() -> Option<Arc<dyn World>> {
        WORLD.try_with(|world| world.borrow().clone()).ok().flatten()
    }
}
