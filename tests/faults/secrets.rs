//! No token and no password in any log line.

use std::fmt::{Debug, Write as _};
use std::sync::{LazyLock, Mutex};

use lockmacro_runtime::{Lock, LockManager};
use lockmacro_tests::{Server, in_time};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::{KEY, LONG, Locked, TIMEOUT, lock, ms};

static LOG: LazyLock<Mutex<String>> = LazyLock::new(Mutex::default);

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

#[tokio::test]
async fn no_log_line_shows_a_token_or_a_password() {
    // The other tests of this process are logged as well, for as long as this one runs.
    tracing::subscriber::set_global_default(ToLog).expect("nobody else logs here");
    let mut server = Server::with(&["--requirepass", "hunter2"]);
    let builder = LockManager::builder().timeout(TIMEOUT).label("log-3");
    let manager = builder.connect(&server.url()).await.expect("there");
    let guard = lock(&manager).acquire().await.expect("free");
    let token = server.admin().get(KEY).expect("held");
    lock(&manager).run_or_skip(async {}).await;
    server.admin().ask::<()>(&["SET", KEY, "foreign-secret", "PX", "60000"]);
    lock(&manager).run_or_skip(async {}).await;
    let _ = guard.release().await;
    server.admin().ask::<()>(&["DEL", KEY]);
    let lost =
        Lock::new(KEY).ttl(ms(60)).manager(&manager).run(std::future::pending::<Locked<()>>());
    in_time(lost).await.expect_err("lost");
    let held = Lock::new(KEY).ttl(LONG).manager(&manager).acquire().await.expect("free");
    let second = server.admin().get(KEY).expect("held");
    server.kill();
    drop(held);
    lock(&manager).run_or_skip(async {}).await;
    drop(LockManager::builder().timeout(TIMEOUT).connect(&server.url()).await);

    let log = LOG.lock().expect("the log").clone();
    // The server that is down is logged at ERROR, for a function that cannot return it.
    assert!(log.contains("ERROR"), "{log}");
    for token in [token, second] {
        let (label, random) = token.rsplit_once('/').expect("label/random");
        assert!(label.starts_with("log-3"));
        assert!(!log.contains(random), "{log}");
    }
    assert!(!log.contains("hunter2") && !log.contains("foreign-secret"), "{log}");
}
