//! The flagship example, run as a user runs it.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

use lockmacro_examples_tests::program;
use lockmacro_tests::{Backend, Certificates, Cluster, Group, Postgres, Server, with_replicas};

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| program("erp_orders"));

/// Runs it on `server`, or on memory.
fn erp_orders(server: Option<&Server>, arguments: &[&str]) -> Run {
    erp_orders_at(server.map(Server::url), arguments)
}

fn erp_orders_at(url: Option<String>, arguments: &[&str]) -> Run {
    let mut command = command(arguments);
    if let Some(url) = url {
        command.env("REDIS_URL", url);
    }
    Run(command.output().unwrap())
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(&*PROGRAM);
    command.args(arguments);
    for server in ["REDIS_URL", "CALLS_URL", "DATABASE_URL"] {
        command.env_remove(server);
    }
    command
}

/// Runs it with locks and orders in this database.
fn erp_orders_in(database: &Postgres, arguments: &[&str]) -> Run {
    let url = database.url_of("postgres", "");
    let url = url.trim_end_matches('?');
    Run(command(arguments).env("DATABASE_URL", url).output().unwrap())
}

struct Run(Output);

impl Run {
    fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    fn out(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    fn err(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }

    #[track_caller]
    fn is_well(&self) {
        assert_eq!(self.code(), Some(0), "{}{}", self.out(), self.err());
        assert!(self.out().contains("checked: every request is accounted for"), "{}", self.out());
        assert!(self.out().ends_with("\nok\n"), "{}", self.out());
        assert_eq!(self.err(), "");
    }

    /// A number of the summary.
    #[track_caller]
    fn count(&self, what: &str) -> u32 {
        let out = self.out();
        let line = out.lines().find_map(|line| line.strip_prefix("  ")?.strip_prefix(what));
        line.and_then(|count| count.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {what}: {out}"))
    }

    /// Every request is in the summary once, and at least one desk found an order busy.
    #[track_caller]
    fn accounts_for(&self, requests: u32) {
        let ends = ["audited", "assigned", "done later", "refused as busy", "failed"];
        assert_eq!(ends.iter().map(|end| self.count(end)).sum::<u32>(), requests);
        assert!(self.out().contains(&format!("\n{requests} requests for 24 orders\n")));
        assert!(self.count("busy answers") > 0, "nobody met: {}", self.out());
        assert!(self.out().contains("within 300 seconds only one request is allowed (held by "));
    }
}

#[test]
fn on_memory_every_order_is_accounted_for() {
    let run = erp_orders(None, &[]);
    run.is_well();
    run.accounts_for(60);
    assert!(run.out().contains("订单-2024-0918"), "{}", run.out());
    assert!(!run.out().to_lowercase().contains("rolled back"), "nothing was lost: {}", run.out());
}

#[test]
fn what_stays_busy_is_reported_as_refused() {
    let run = erp_orders(None, &["--passes", "1"]);
    run.is_well();
    run.accounts_for(60);
    assert_eq!(run.count("refused as busy"), run.count("busy answers"));
}

#[test]
fn waiting_desks_never_find_an_order_busy() {
    for server in [None, Some(Server::start())] {
        let run = erp_orders(server.as_ref(), &["--busy", "wait"]);
        run.is_well();
        assert_eq!((run.count("busy answers"), run.count("refused as busy")), (0, 0));
        assert_eq!(run.count("audited") + run.count("assigned"), 60);
    }
}

#[test]
fn what_is_deferred_is_done_in_the_end() {
    for server in [None, Some(Server::start())] {
        let run = erp_orders(server.as_ref(), &["--busy", "defer"]);
        run.is_well();
        assert!(run.count("done later") > 0, "nobody met: {}", run.out());
        let done = ["audited", "assigned", "done later"].map(|end| run.count(end));
        assert_eq!(done.iter().sum::<u32>(), 60);
    }
}

#[test]
fn the_server_for_calls_is_not_asked_where_nothing_is_deferred() {
    let mut reporting = command(&["--busy", "report"]);
    Run(reporting.env("CALLS_URL", "redis://127.0.0.1:1").output().unwrap()).is_well();
}

#[test]
fn without_the_lock_the_check_fails() {
    for server in [None, Some(Server::start())] {
        let run = erp_orders(server.as_ref(), &["--no-lock"]);
        assert_eq!(run.code(), Some(1), "{}", run.out());
        assert!(run.out().contains("was in two bodies at once"), "{}", run.out());
        assert!(run.out().ends_with("\nNOT OK\n"), "{}", run.out());
    }
}

#[test]
fn on_a_server_processes_exclude_each_other_and_leave_no_key() {
    let server = Server::start();
    let run = erp_orders(Some(&server), &[]);
    run.is_well();
    run.accounts_for(60);
    assert_eq!(server.admin().keys(), Vec::<String>::new());
}

/// Each order is written as often as was reported, and once more by the holder after the late one.
#[tokio::test]
async fn in_a_database_each_done_request_is_written_and_a_late_writer_is_refused() {
    let database = Postgres::start().await;
    let db = database.connect().await;
    let mut written = 0;
    for _ in 0..2 {
        let run = erp_orders_in(&database, &[]);
        run.is_well();
        run.accounts_for(60);
        let late = "\npaused: LATE SO-2024-1041: its write was refused\n";
        assert!(run.out().contains(late), "{}", run.out());
        written += i64::from(run.count("audited") + run.count("assigned") + 1);
        let sum = "SELECT sum(writes)::bigint, count(*) FROM erp_order";
        let row = db.query_one(sum, &[]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), written);
        assert!((1..=24).contains(&row.get::<_, i64>(1)));
        let last = "SELECT written_by, warehouse FROM erp_order WHERE order_no = 'SO-2024-1041'";
        assert_eq!(db.query_one(last, &[]).await.unwrap().get::<_, &str>(0), "next");
        database.keeps_nothing("").await;
    }
}

#[tokio::test]
async fn by_the_url_of_a_database_the_other_strategies_run_too() {
    let database = Postgres::start().await;
    for strategy in ["wait", "defer"] {
        erp_orders_in(&database, &["--busy", strategy]).is_well();
        database.keeps_nothing("").await;
    }
    let reports = erp_orders_in(&database, &["--reports"]);
    assert!(reports.out().ends_with("\nok\n"), "{}{}", reports.out(), reports.err());
    let without = erp_orders_in(&database, &["--no-lock"]);
    assert!(without.out().ends_with("\nNOT OK\n"), "{}{}", without.out(), without.err());
    for refused in ["--lose", "--php-like"] {
        assert_eq!(erp_orders_in(&database, &[refused]).code(), Some(2), "{refused}");
    }
}

/// Four requests for two orders, by two desks that wait for each other.
#[tokio::test]
async fn by_the_url_alone_it_runs_on_every_kind_of_server() {
    let certificates = Certificates::new();
    let group = Group::alone(Server::start(), "", &[]);
    let (encrypted, redlock) = (certificates.server(), Backend::redlock());
    let (cluster, replicated) = (Cluster::start(2, 0).await, with_replicas(1).await);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("batch.csv");
    let text = "order_no,customer,sku,quantity,request,warehouse\n\
        A-1,Weber & Sohn,CUP,3,audit,\n\
        A-1,Weber & Sohn,CUP,3,assign,Rotterdam\n\
        A-2,Weber & Sohn,CUP,3,audit,\n\
        A-2,Weber & Sohn,CUP,3,assign,Rotterdam\n";
    std::fs::write(&file, text).unwrap();
    let secret: Vec<_> = (0..3).map(|_| certificates.server()).collect();
    let places: Vec<_> = secret.iter().map(|s| format!("127.0.0.1:{}", s.port())).collect();
    for url in [
        group.url(),
        cluster.url(),
        certificates.encrypted(&encrypted.url()),
        redlock.url().to_owned(),
        format!("redlocks://{}?durable&cacert={}", places.join(","), certificates.path("ca.pem")),
        format!("{}?replicated=1&replicated_timeout=30s", replicated[0].url()),
    ] {
        let arguments = [file.to_str().unwrap(), "--desks", "2", "--busy", "wait"];
        let run = erp_orders_at(Some(url.clone()), &arguments);
        run.is_well();
        assert_eq!((run.count("audited"), run.count("assigned")), (2, 2), "{url}: {}", run.out());
    }
    // A Redlock cannot store calls, so another server does.
    let calls = Server::start();
    let mut deferring = command(&[file.to_str().unwrap(), "--desks", "2", "--busy", "defer"]);
    deferring.env("REDIS_URL", redlock.url()).env("CALLS_URL", calls.url());
    let run = Run(deferring.output().unwrap());
    run.is_well();
    let ends = ["audited", "assigned", "done later"];
    assert_eq!(ends.iter().map(|end| run.count(end)).sum::<u32>(), 4, "{}", run.out());
}

#[test]
fn on_a_server_a_foreign_client_and_the_desks_exclude_each_other() {
    let server = Server::start();
    let run = erp_orders(Some(&server), &["--php-like"]);
    run.is_well();
    run.accounts_for(84);
    // All begin with the same order, so that at least one side finds the order busy.
    let met = ["(held by a foreign client; free in ", "php: BUSY "];
    assert!(met.iter().any(|met| run.out().contains(met)), "{}", run.out());
    assert_eq!(server.admin().keys(), Vec::<String>::new());
}

#[test]
fn an_order_that_somebody_keeps_is_refused_and_the_rest_go_on() {
    let server = Server::start();
    server.admin().ask::<()>(&["SET", "order:SO-2024-1041", "kept", "EX", "300"]);
    // Enough passes, so that no request is refused because of the others.
    let run = erp_orders(Some(&server), &["--passes", "50"]);
    run.is_well();
    run.accounts_for(60);
    assert_eq!(run.count("refused as busy"), 3, "{}", run.out());
    assert!(run.out().contains("BUSY order SO-2024-1041 is being processed: within 500 seconds only one request is allowed (held by a foreign client; free in "));
    assert_eq!(server.admin().keys(), ["order:SO-2024-1041"]);
}

#[test]
fn a_bad_line_is_reported_with_its_number_and_the_rest_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("batch.csv");
    let text = "order_no,customer,sku,quantity,request,warehouse\n\
        A-1,Weber & Sohn,CUP,3,audit,\n\
        A-2,Weber & Sohn,CUP,many,audit,\n\
        A-3,Weber & Sohn,CUP,3,assign,\n\
        A-4,Weber & Sohn\n\
        A-5,Weber & Sohn,CUP,3,cancel,\n\
        ,Weber & Sohn,CUP,3,audit,\n\
        A-6,Weber & Sohn,CUP,3,assign,Rotterdam\n";
    std::fs::write(&file, text).unwrap();
    let run = erp_orders(None, &[file.to_str().unwrap()]);
    assert_eq!(run.code(), Some(1), "{}", run.out());
    let out = run.out();
    for (line, why) in [
        (3, "invalid digit"),
        (4, "names no warehouse"),
        (5, "2 fields where 6 are expected"),
        (6, "unknown variant `cancel`, expected `audit` or `assign`"),
        (7, "no usable number"),
    ] {
        let message = out.lines().find(|message| message.starts_with(&format!("line {line} of ")));
        assert!(message.is_some_and(|message| message.contains(why)), "line {line}, {why}: {out}");
    }
    assert_eq!((run.count("audited"), run.count("assigned")), (1, 1), "{out}");
    assert_eq!(run.count("unreadable lines"), 5);
}

#[test]
fn what_cannot_start_says_why_with_exit_code_2() {
    let mut server = Server::start();
    server.kill();
    for (url, arguments, why) in [
        (None, &["no-such-file.csv"][..], "error: cannot read no-such-file.csv: "),
        (None, &["--php-like"], "set REDIS_URL"),
        (Some("redlock://a,b,c"), &["--busy", "defer"], "set CALLS_URL to one Redis server"),
        // A wrong address is not taken for none.
        (Some("reds://127.0.0.1"), &[], "`url` is not usable"),
        (Some(&*server.url()), &[], "unavailable"),
    ] {
        let run = erp_orders_at(url.map(str::to_owned), arguments);
        assert_eq!(run.code(), Some(2), "{why}: {}", run.err());
        assert!(run.err().starts_with("error: ") && run.err().contains(why), "{}", run.err());
    }
}

/// Every assignment in a third line of the file loses its lock. On a machine that is paused for a
/// lease others may do so too, and are rolled back all the same.
#[track_caller]
fn is_rolled_back(run: &Run, requests: u32, how: &str) {
    run.is_well();
    let lost = run.count("lost, rolled back");
    assert!((9..15).contains(&lost), "{}", run.out());
    let ends = ["audited", "assigned", "done later", "refused as busy", "failed"];
    assert_eq!(ends.iter().map(|end| run.count(end)).sum::<u32>() + lost, requests);
    let message = "ROLLED BACK SO-2024-1042 (line 6): the lock `order:SO-2024-1042` was lost: ";
    assert!(run.out().contains(&format!("{message}{how}\n")), "{}", run.out());
    assert!(run.out().contains("what is out of stock is what was assigned"), "{}", run.out());
}

#[test]
fn on_memory_an_assignment_that_loses_its_lock_is_rolled_back() {
    let run = erp_orders(None, &["--lose", "--passes", "50"]);
    is_rolled_back(&run, 60, "it was held for longer than its ttl or `max_hold`");
}

#[test]
fn on_a_server_an_assignment_whose_key_is_deleted_is_rolled_back() {
    let server = Server::start();
    let run = erp_orders(Some(&server), &["--lose", "--php-like", "--passes", "50"]);
    is_rolled_back(&run, 84, "its key is gone from the server, or has another value");
    assert_eq!(server.admin().keys(), Vec::<String>::new());
}

#[test]
fn reports_share_an_order_and_three_are_printed_at_a_time() {
    for server in [None, Some(Server::start())] {
        let run = erp_orders(server.as_ref(), &["--reports"]);
        assert_eq!(run.code(), Some(0), "{}{}", run.out(), run.err());
        assert!(run.out().contains("at the same time: 1 audit, "), "{}", run.out());
        assert!(run.out().ends_with(" 3 prints\nok\n"), "{}", run.out());
    }
}
