//! Clocks, and the statistics of many measurements.

use std::fmt;
use std::time::Duration;

use lockmacro_tests::Admin;
use rustix::time::{ClockId, clock_gettime};

/// The processor time that this process has used, on all its threads.
pub fn cpu() -> Duration {
    // Never negative, as this clock starts with the process.
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Nanoseconds on a clock that all processes of a machine share.
pub fn now() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    // Enough for centuries.
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// The processor time that a server has used.
pub fn server_cpu(admin: &mut Admin) -> Duration {
    let text: String = admin.ask(&["INFO", "cpu"]);
    let seconds = |name| text.lines().find_map(|line| line.strip_prefix(name)?.parse::<f64>().ok());
    let (user, system) = (seconds("used_cpu_user:"), seconds("used_cpu_sys:"));
    Duration::from_secs_f64(user.unwrap_or_default() + system.unwrap_or_default())
}

/// The memory of this process that is not swapped out, in bytes.
pub fn resident() -> Result<u64, std::io::Error> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| std::io::Error::other("no VmRSS in the status"))
}

/// The median of some measurements and the middle half around it.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            let index = values.len().saturating_sub(1) * quarter / 4;
            values.get(index).copied().unwrap_or(f64::NAN)
        };
        Self { low: at(1), median: at(2), high: at(3) }
    }
}

/// The median, and the quartiles in brackets.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { low, median, high } = self;
        write!(f, "{median:.2} ({low:.2} to {high:.2})")
    }
}
