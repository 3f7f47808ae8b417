//! The log of this process, event by event.

use std::fmt::{Debug, Write as _};
use std::sync::{LazyLock, Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static LOG: LazyLock<Mutex<String>> = LazyLock::new(Mutex::default);

/// Logs from now on. The other tests of this process are logged as well.
pub fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        tracing::subscriber::set_global_default(ToLog).expect("nobody else logs here");
    });
}

/// Every line since the first [`start`].
pub fn so_far() -> String {
    LOG.lock().expect("the log").clone()
}

/// Writes every event and span of this process to `LOG`.
struct ToLog;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Line {
    fn end(self) {
        let mut log = LOG.lock().expect("the log");
        log.push_str(&self.0);
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
        line.end();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut line = Line(String::new());
        values.record(&mut line);
        line.end();
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        line.end();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
