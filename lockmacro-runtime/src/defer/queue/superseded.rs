//! Which jobs were stored before another one began, where answers take their time.

use std::time::Duration;

use crate::defer::limits::SIMULTANEOUS;
use crate::sys::time::Instant;
use crate::value::error::LockError;

/// Most requests until an answer is quick enough to tell.
const LOOKS: usize = 3;
/// No further request after this time, as the call that waits for it has its lock.
const LONGEST: Duration = Duration::from_secs(2);

/// Asks for jobs by `look`, and returns those that were stored before a call that began `began`
/// before now. `age` is how long before the server looked a job was stored.
///
/// Jobs that are [simultaneous](SIMULTANEOUS) count as earlier. A job that may be a later one,
/// because every answer was slow, is not returned: it would be lost.
pub(crate) async fn stored_before<C, F>(
    began: Duration,
    look: impl Fn() -> F,
    age: impl Fn(&C) -> Duration,
) -> Result<Vec<C>, LockError>
where
    F: Future<Output = Result<Vec<C>, LockError>>,
{
    let start = Instant::now();
    let mut looks = 0;
    loop {
        looks += 1;
        // When the request is sent, and when the answer is there: the server looks in between.
        let earliest = began + start.elapsed();
        let mut found = look().await?;
        let latest = began + start.elapsed().saturating_sub(SIMULTANEOUS);
        let is_unclear = |job: &C| (earliest..latest).contains(&age(job));
        if found.iter().any(is_unclear) {
            if looks < LOOKS && start.elapsed() < LONGEST {
                continue;
            }
            tracing::debug!("an older job may be left, as the server answers slowly");
        }
        found.retain(|job| age(job) >= earliest.max(latest));
        return Ok(found);
    }
}
