//! The table, in Markdown that can be read as it is.

use std::fmt::{self, Write};

use super::cell::{Cell, Contender, Shape};
use super::measured::Measured;
use super::sample::Sample;
use crate::measure::Spread;

/// The setting in which the numbers were measured.
pub struct Setting {
    pub rounds: u32,
    pub redis: String,
    pub processors: usize,
    /// A round trip in microseconds, to the server on this machine and to the server on another
    /// one.
    pub near: Spread,
    pub far: Spread,
}

impl Setting {
    fn round_trip(&self, cell: &Cell) -> f64 {
        if cell.far { self.far.median } else { self.near.median }
    }
}

type Column = (&'static str, fn(&Setting, &Measured, Contender) -> String);

const NAMES: [Column; 3] = [
    ("hold", |_, row, _| format!("{} ms", row.cell.hold)),
    ("waiters", |_, row, _| figure(f64::from(row.cell.waiters))),
    ("", |_, _, contender| contender.name().to_owned()),
];
const SPEED: [Column; 5] = [
    ("acquisitions/s", |_, row, of| spread(row.spread(of, |s| s.per_second))),
    ("× rslock", |_, row, of| spread(row.ratio(of, Contender::Rslock, |s| s.per_second))),
    ("× no lock", |_, row, of| spread(row.ratio(of, Contender::Unlocked, |s| s.per_second))),
    ("gap, µs", |_, row, of| median(row, of, |s| s.gap)),
    ("in round trips", |setting, row, of| {
        figure(row.spread(of, |s| s.gap).median / setting.round_trip(&row.cell))
    }),
];
const WAIT: [Column; 4] = [
    ("wait p50, ms", |_, row, of| median(row, of, |s| s.wait_half)),
    ("p99", |_, row, of| median(row, of, |s| s.wait_99)),
    ("× rslock", |_, row, of| spread(row.ratio(of, Contender::Rslock, |s| s.wait_99))),
    ("max", |_, row, of| median(row, of, |s| s.wait_max)),
];
const COSTS: [Column; 4] = [
    ("commands", |_, row, of| median(row, of, |s| s.commands)),
    ("client µs", |_, row, of| median(row, of, |s| s.client)),
    ("server µs", |_, row, of| median(row, of, |s| s.server)),
    ("gave up", |_, row, of| percent(row.spread(of, |s| s.unserved).median)),
];
const ORDER: [Column; 1] =
    [("overtook", |_, row, of| percent(row.spread(of, |s| s.overtaking).median))];

type Section = (&'static str, fn(&Cell) -> bool, &'static [&'static [Column]]);

const SECTIONS: [Section; 6] = [
    (
        "Burst: all callers request the lock at once, each of them once; one process",
        |cell| cell.shape == Shape::Burst && cell.processes == 1,
        &[&NAMES, &SPEED, &WAIT, &COSTS],
    ),
    (
        "Burst: four processes",
        |cell| cell.shape == Shape::Burst && cell.processes == 4,
        &[&NAMES, &SPEED, &WAIT, &COSTS],
    ),
    (
        "Order: one process, callers arrive one after another while the lock is held",
        |cell| cell.shape == Shape::Line,
        &[&NAMES, &ORDER, &WAIT],
    ),
    (
        "Loop: every caller requests the lock again after its release; one process",
        |cell| cell.shape == Shape::Loop && cell.processes == 1,
        &[&NAMES, &SPEED, &WAIT, &COSTS],
    ),
    (
        "Loop: four processes",
        |cell| cell.shape == Shape::Loop && cell.processes == 4 && !cell.far,
        &[&NAMES, &SPEED, &WAIT, &COSTS],
    ),
    (
        "Loop: four processes, and the server is 1 ms away",
        |cell| cell.shape == Shape::Loop && cell.far,
        &[&NAMES, &SPEED, &WAIT, &COSTS],
    ),
];

pub fn table(setting: &Setting, measured: &[Measured]) -> Result<String, fmt::Error> {
    let Setting { rounds, redis, processors, near, far } = setting;
    let mut text = format!(
        "# One hot key\n\n\
        Waiting in the queue (`Lock::wait_forever`) beside `rslock` 0.10 with its own retry (three \
        tries up to 200 ms\napart, again and again), a poller (`SET NX PX` every 10 ms, and a \
        script that compares and deletes), and\nthe poller behind a `tokio::sync::Mutex` of its \
        process.\n\
        Made by `cargo run --release -p lockmacro-benches -- contention`.\n\n\
        ![A burst of waiters](contention.svg)\n\n\
        {rounds} rounds with everything in turn on one redis-server {redis}, on a machine with \
        {processors} processors for\nthe server and all processes. Medians, with the quartiles in \
        brackets; ratios within a round.\n\n\
        - A round trip (`PING`) takes {} µs, and {} µs where the server is 1 ms away.\n\
        - *× no lock*: one task that runs the bodies one after another, without a lock, is as fast \
        as any lock can be.\n\
        - *gap*: from the end of one body to the beginning of the next one.\n\
        - *wait*: from the request to the beginning of the body, or until the caller gives up.\n\
        - *commands*: sent by clients for one acquisition. `INFO commandstats` also counts the \
        commands of scripts:\n  these are `evalsha`, `eval` and `set` without the one `set` of \
        lockmacro's own script.\n\
        - *client*, *server*: processor time of all processes and of the server for one \
        acquisition.\n\
        - *gave up*: callers without the lock within 1.5 s (of a burst, or after a loop of 1.5 s).\n",
        spread(*near),
        spread(*far)
    );
    for (title, belongs, columns) in SECTIONS {
        let columns = columns.concat();
        let mut rows = vec![columns.iter().map(|(title, _)| (*title).to_owned()).collect()];
        for row in measured.iter().filter(|row| belongs(&row.cell)) {
            for contender in row.cell.contenders() {
                let fill = |(_, of): &Column| of(setting, row, *contender);
                rows.push(columns.iter().map(fill).collect::<Vec<String>>());
            }
        }
        write!(text, "\n## {title}\n\n{}", aligned(&rows))?;
    }
    Ok(text)
}

/// Aligns the columns; the first row is the head. A column without a title has names, and is
/// aligned on the left.
fn aligned(rows: &[Vec<String>]) -> String {
    let head = rows.first().map_or(&[][..], Vec::as_slice);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for ((field, title), &width) in row.iter().zip(head).zip(&widths) {
            text += &match title.as_str() {
                "" => format!("| {field:width$} "),
                _ => format!("| {field:>width$} "),
            };
        }
        text += "|\n";
        if number == 0 {
            for (title, &width) in head.iter().zip(&widths) {
                let dashes = "-".repeat(width + 1);
                text +=
                    &if title.is_empty() { format!("|:{dashes}") } else { format!("|{dashes}:") };
            }
            text += "|\n";
        }
    }
    text
}

fn median(row: &Measured, contender: Contender, of: fn(&Sample) -> f64) -> String {
    figure(row.spread(contender, of).median)
}

fn spread(spread: Spread) -> String {
    let Spread { low, median, high } = spread;
    if low == high {
        return figure(median);
    }
    format!("{} ({} to {})", figure(median), figure(low), figure(high))
}

fn percent(share: f64) -> String {
    if share == 0.0 { "0".to_owned() } else { format!("{:.1} %", share * 100.0) }
}

/// Three significant digits, or all digits before the point.
fn figure(value: f64) -> String {
    match value {
        _ if value.is_nan() => "–".to_owned(),
        _ if value >= 999.5 => {
            let value = value.round() as u64;
            format!("{},{:03}", value / 1_000, value % 1_000)
        }
        _ if value >= 99.95 || value.fract() == 0.0 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
