//! The metric of jobs.

use std::borrow::Cow;
use std::sync::Arc;

use crate::sys::metrics::tell;

/// Counts what became of a job.
pub(crate) fn job(name: &Arc<str>, event: &'static str) {
    count_job(name, event, 1);
}

/// Counts no dead job yet of a function that this process works for: one that would appear with
/// its first job would not have increased by that.
pub(crate) fn works_for(name: &Arc<str>) {
    count_job(name, "dead", 0);
}

fn count_job(name: &Arc<str>, event: &'static str, by: u64) {
    let labels = || [("name", Cow::Owned(name.to_string())), ("event", event.into())];
    tell!(counter, "lockmacro_jobs_total", labels(), increment(by));
}
