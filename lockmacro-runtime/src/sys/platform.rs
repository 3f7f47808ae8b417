//! The differences between systems. No other file asks which one it is built for.
//!
//! The clock of leases has to run on while the machine sleeps, as the server's clock does:
//!
//! | system | clock | where its documentation says so |
//! |---|---|---|
//! | Linux, Android | `CLOCK_BOOTTIME` | clock_gettime(2): "also includes any time that the system is suspended" |
//! | macOS | `CLOCK_MONOTONIC` | clock_gettime(3): "will continue to increment while the system is asleep" |
//! | Windows | `QueryPerformanceCounter`, which [`Instant`](std::time::Instant) reads | Microsoft, [Acquiring high-resolution time stamps][qpc]: "including the time when the machine was in a sleep state" |
//! | other Unix | `CLOCK_MONOTONIC` | POSIX leaves it open |
//!
//! [qpc]: https://learn.microsoft.com/windows/win32/sysinfo/acquiring-high-resolution-time-stamps

pub(crate) use system::{host_name, since_boot};

/// What only connections to Redis servers need.
#[cfg(feature = "redis")]
pub(crate) mod redis_streams {
    use std::time::Duration;

    use redis::io::tcp::TcpSettings;

    pub(crate) use crate::sys::platform::system::{UNIX_SOCKETS, unix_socket};

    /// Drops data that the network has not accepted within `unsent`, on systems with such a
    /// setting.
    pub(crate) fn dropping_unsent(tcp: TcpSettings, unsent: Duration) -> TcpSettings {
        #[cfg(any(target_os = "android", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(unsent);
        #[cfg(not(any(target_os = "android", target_os = "linux")))]
        let _ = unsent;
        tcp
    }
}

#[cfg(unix)]
mod system {
    use std::io;
    use std::path::Path;
    use std::pin::Pin;
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};
    use tokio::net::UnixStream;

    use crate::sys::world::Stream;

    /// Whether the system has Unix sockets.
    pub(crate) const UNIX_SOCKETS: bool = true;

    /// The time since boot by the clock of leases.
    pub(crate) fn since_boot() -> Duration {
        #[cfg(any(target_os = "android", target_os = "linux"))]
        let clock = ClockId::Boottime;
        #[cfg(not(any(target_os = "android", target_os = "linux")))]
        let clock = ClockId::Monotonic;
        clock_gettime(clock).try_into().unwrap_or_default()
    }

    /// The name of this machine.
    pub(crate) fn host_name() -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    /// Connects to a Unix socket.
    pub(crate) async fn unix_socket(path: &Path) -> io::Result<Pin<Box<dyn Stream>>> {
        Ok(Box::pin(UnixStream::connect(path).await?))
    }
}

#[cfg(windows)]
mod system {
    use std::io;
    use std::path::Path;
    use std::pin::Pin;
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    use crate::sys::world::Stream;

    /// Whether the system has Unix sockets that tokio can connect to.
    pub(crate) const UNIX_SOCKETS: bool = false;

    /// An `Instant` does not tell the time since boot, so that is a day when it is first asked for:
    /// virtual time may go back from there.
    const FIRST: Duration = Duration::from_secs(24 * 60 * 60);

    /// The time since boot by the clock of leases.
    pub(crate) fn since_boot() -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        FIRST + START.elapsed()
    }

    /// The name of this machine.
    pub(crate) fn host_name() -> String {
        std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".to_owned())
    }

    /// Fails: there are none.
    pub(crate) async fn unix_socket(_: &Path) -> io::Result<Pin<Box<dyn Stream>>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_clock_of_leases_runs_as_fast_as_the_clock_of_timers() {
        let timers = std::time::Instant::now();
        let leases = since_boot();
        std::thread::sleep(Duration::from_millis(20));
        let inner = since_boot().saturating_sub(leases);
        let outer = timers.elapsed();
        assert!(inner >= Duration::from_millis(19) && inner <= outer + Duration::from_millis(1));
    }

    #[test]
    fn a_machine_has_a_name() {
        assert!(!host_name().is_empty());
    }
}
