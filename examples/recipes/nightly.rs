//! A run that must happen once a day, after two in the morning in Berlin, even if machines die:
//! `cargo run -p lockmacro-recipes --example nightly`

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};
use lockmacro_runtime::defer::{JobState, Worker};
use lockmacro_runtime::{LockError, LockManager, distributed_lock};
use std::{collections::BTreeSet, sync::Mutex, time::Duration};

/// In a program: a table, written in the transaction of the work.
static DONE: Mutex<BTreeSet<Date>> = Mutex::new(BTreeSet::new());

/// If its worker dies, another one runs the call again. So it looks first what is done.
#[distributed_lock(key = "report:<day>", ttl = "1s", renew, on_busy = defer("1s"))]
async fn report(day: String) -> Result<(), LockError> {
    let day = day.parse().expect("a date");
    if !DONE.lock().expect("days").contains(&day) {
        tokio::time::sleep(Duration::from_millis(200)).await; // the work
        assert!(DONE.lock().expect("days").insert(day), "{day} is done twice");
    }
    Ok(())
}

/// The latest day whose run is due. A day may have no 02:00, or two; one moment is 2 h after 00:00.
fn due(now: Timestamp, zone: &str) -> Date {
    (now - 2.hours()).to_zoned(TimeZone::get(zone).expect("a time zone")).date()
}

/// Each machine calls this every minute. The id is the day, so one call is stored until it is done.
async fn ask(locks: &LockManager, day: Date) -> Result<(), LockError> {
    if !DONE.lock().expect("days").contains(&day) {
        let calls = report_deferred().manager(locks);
        calls.enqueue(day.to_string(), (day.to_string(),)).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let locks = LockManager::connect("memory://").await?; // or "redis://…"
    locks.install()?;
    let day = due(Timestamp::now(), "Europe/Berlin");
    tokio::try_join!(ask(&locks, day), ask(&locks, day), ask(&locks, day))?;
    let name = report_deferred().name().into();
    assert_eq!(locks.job_queue().list(name, JobState::Waiting, 0, 9).await?.total, 1);
    for dies_after in [100, 3_000] {
        let worker = Worker::new(&locks).lease(Duration::from_secs(1)).register(report_deferred());
        let _ = tokio::time::timeout(Duration::from_millis(dies_after), worker.run()).await;
    }
    assert!(DONE.lock().expect("days").contains(&day), "{day} is not done");
    ask(&locks, day).await
}

#[test]
fn a_day_is_done_once_though_a_worker_dies_and_is_the_day_of_the_zone() {
    assert_eq!(main(), Ok(()));
    let day = |utc: &str| due(utc.parse().expect("a time"), "Europe/Berlin").to_string();
    // 02:00 does not exist on 29 March 2026, and is twice on 25 October.
    assert_eq!(["2026-03-29T00:59Z", "2026-03-29T01:00Z"].map(day), ["2026-03-28", "2026-03-29"]);
    assert_eq!(["2026-10-24T23:59Z", "2026-10-25T01:00Z"].map(day), ["2026-10-24", "2026-10-25"]);
}
