//! The log of this process, event by event.

use std::fmt::{Debug, Write as _};
use std::sync::{LazyLock, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static LOG: LazyLock<Mutex<String>> = LazyLock::new(Mutex::default);

/// Logs from now on. The other tests of this process are logged as well.
pub fn start() {
    start_of(|_| true);
}

/// Logs the lines for which this holds. Tests of one process agree on it.
pub fn start_of(is_kept: fn(&str) -> bool) {
    static START: Once = Once::new();
    START.call_once(|| {
        let to_log = ToLog { is_kept };
        tracing::subscriber::set_global_default(to_log).expect("nobody else logs here");
    });
}

/// Every line since the first [`start`].
pub fn so_far() -> String {
    LOG.lock().expect("the log").clone()
}

/// Those of the lines for which this holds.
pub fn lines(is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let log = LOG.lock().expect("the log");
    log.lines().filter(|line| is_wanted(line)).map(str::to_owned).collect()
}

/// Writes events and spans of this process to `LOG`.
struct ToLog {
    is_kept: fn(&str) -> bool,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl ToLog {
    fn end(&self, Line(line): Line) {
        if !(self.is_kept)(&line) {
            return;
        }
        let mut log = LOG.lock().expect("the log");
        log.push_str(&line);
        log.push('\n');
    }
}

impl Subscriber for ToLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        self.end(line);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        self.end(line);
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.end(line);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
