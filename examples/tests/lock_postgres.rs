//! The client in Python for locks in PostgreSQL, beside a program in Rust and with a real server.

use std::time::Duration;

use futures::future::{join_all, try_join_all};
use lockmacro_runtime::{Lock, LockError, LockGuard, LockManager, distributed_lock};
use lockmacro_tests::times::{LONG_TTL, PUSHED, TEST_TIMEOUT};
use lockmacro_tests::{Postgres, Process, eventually, in_time, is_in_time, within};
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol");

/// Python that finds the client, with a program and its arguments.
fn python(program: &str, server: &Postgres) -> std::process::Command {
    let mut python = std::process::Command::new("python3");
    python
        .env("PYTHONPATH", FOLDER)
        .env("PYTHONUTF8", "1")
        .args(["-B", "-c", program])
        .arg(server.url_of("postgres", ""));
    python
}

/// The client, which says what each expression is that it is told.
struct Python(Process);

impl Python {
    const PROGRAM: &str = "\
import sys
from lock_postgres import *

db = connect(sys.argv[1])
for line in sys.stdin:
    try:
        said = eval(line)
    except ConnectionError as error:
        said = error
    print(said, flush=True)
";

    fn connected_to(server: &Postgres) -> Self {
        Self(Process::start(&mut python(Self::PROGRAM, server)))
    }

    fn says(&mut self, expression: &str) -> String {
        self.0.tell(expression);
        self.0.next_line()
    }
}

async fn manager(server: &Postgres) -> LockManager {
    within(LONG_TTL, &server.url()).await
}

fn order(locks: &LockManager) -> Lock {
    Lock::new("order:42").ttl(LONG_TTL).manager(locks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_in_python_excludes_and_is_excluded() {
    let server = Postgres::start().await;
    let locks = manager(&server).await;
    let mut client = Python::connected_to(&server);
    let token = client.says("acquire(db, 'order:42', 60000)");
    let busy = order(&locks).acquire().await.expect_err("it is held");
    assert_eq!(busy.holder().owner.as_deref(), Some("lock.py"), "{busy}");
    assert_eq!(client.says("acquire(db, 'order:42', 60000)"), "None");
    let release = format!("release(db, 'order:42', {token:?})");
    assert_eq!(client.says(&release), "True");

    let ours = order(&locks).acquire().await.expect("free");
    assert_eq!(client.says("acquire(db, 'order:42', 60000)"), "None");
    assert_eq!(client.says(&release), "False");
    ours.release().await.expect("still held");
    server.keeps_nothing("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_in_python_locks_the_key_that_it_is_told() {
    let server = Postgres::start().await;
    let locks = manager(&server).await;
    let mut client = Python::connected_to(&server);
    let key = r"it's \n :order {订单}";
    let token = client.says(&format!("acquire(db, {key:?}, 60000)"));
    let busy = Lock::new(key).manager(&locks).acquire().await.expect_err("it is held");
    assert_eq!(busy.holder().owner.as_deref(), Some("lock.py"), "{busy}");
    assert_eq!(client.says(&format!("release(db, {key:?}, {token:?})")), "True");
    server.keeps_nothing("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_in_python_renews_its_lock_until_it_is_released() {
    let server = Postgres::start().await;
    let locks = manager(&server).await;
    let mut client = Python::connected_to(&server);
    let token = client.says("acquire(db, 'order:42', 20000)");
    let renew = format!("renew(db, 'order:42', {token:?}, 60000)");
    assert_eq!(client.says(&renew), "True");
    let busy = order(&locks).acquire().await.expect_err("it is held");
    assert!(busy.holder().free_within > Some(Duration::from_secs(20)), "{busy}");
    assert_eq!(client.says(&format!("release(db, 'order:42', {token:?})")), "True");
    assert_eq!(client.says(&renew), "False");
    order(&locks).acquire().await.expect("free").release().await.expect("still held");
}

/// A function gives up after 200 ms, and the client calls it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_in_python_repeats_a_call_that_has_waited_too_long_for_a_row() {
    let server = Postgres::start().await;
    let (locks, db) = (manager(&server).await, server.connect().await);
    order(&locks).acquire().await.expect("free").release().await.expect("still held");
    let mut client = Python::connected_to(&server);
    db.batch_execute("BEGIN; SELECT FROM lm1.lease FOR UPDATE").await.expect("locked");
    let acquiring = tokio::task::spawn_blocking(move || {
        let token = client.says("acquire(db, 'order:42', 60000)");
        (client, token)
    });
    sleep(Duration::from_millis(900)).await;
    db.batch_execute("COMMIT").await.expect("ended");
    let (mut client, token) = in_time(acquiring).await.expect("no panic");
    assert!(order(&locks).acquire().await.expect_err("held").is_busy());
    assert_eq!(client.says(&format!("release(db, 'order:42', {token:?})")), "True");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_in_python_gives_a_call_up_whose_row_stays_locked() {
    let server = Postgres::start().await;
    let (locks, db) = (manager(&server).await, server.connect().await);
    order(&locks).acquire().await.expect("free").release().await.expect("still held");
    let mut client = Python::connected_to(&server);
    db.batch_execute("BEGIN; SELECT FROM lm1.lease FOR UPDATE").await.expect("locked");
    let given_up =
        tokio::task::spawn_blocking(move || client.says("acquire(db, 'order:42', 60000)"));
    assert_eq!(in_time(given_up).await.expect("no panic"), "ERROR:  55P03");
    db.batch_execute("COMMIT").await.expect("ended");
    order(&locks).acquire().await.expect("free").release().await.expect("still held");
}

type Waiting = JoinHandle<Result<LockGuard, LockError>>;

/// A waiter that is in the queue.
async fn is_waiting(locks: &LockManager, db: &Client) -> Waiting {
    let waiting = tokio::spawn(order(locks).wait(LONG_TTL).acquire());
    eventually("it waits", TEST_TIMEOUT, || async {
        !db.query("SELECT FROM lm1.waiter", &[]).await.expect("an answer").is_empty()
    })
    .await;
    waiting
}

/// It is served before it asks again.
async fn is_served(waiting: Waiting) -> LockGuard {
    let served = timeout(PUSHED, waiting).await.expect("by a push");
    served.expect("no panic").expect("its turn")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_in_python_hands_the_lock_to_a_waiter_by_a_push() {
    let server = Postgres::start().await;
    let (locks, db) = (manager(&server).await, server.connect().await);
    let mut client = Python::connected_to(&server);
    let token = client.says("acquire(db, 'order:42', 60000)");
    let waiting = is_waiting(&locks, &db).await;
    assert_eq!(client.says(&format!("release(db, 'order:42', {token:?})")), "True");
    let guard = is_served(waiting).await;
    assert_eq!(client.says("acquire(db, 'order:42', 60000)"), "None");
    guard.release().await.expect("still held");
}

/// The statements of the page: ask, renew, release and push.
fn statements(label: &str) -> [String; 4] {
    let (_, block) =
        include_str!("../../docs/internals/protocol.md").split_once("```sql\n").expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    let block = block.replace("<token>", &format!("'{label}/{:032x}'", fastrand::u128(..)));
    let block = block.replace("<channels>, <pushes>", "$1::text[], $2::text[]");
    let statements: Vec<_> = block.split_terminator(";\n").map(str::to_owned).collect();
    statements.try_into().expect("four statements")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statements_of_the_page_lock_renew_release_and_push() {
    let server = Postgres::start().await;
    let (locks, db) = (manager(&server).await, server.connect().await);
    let [ask, renew, release, push] = &statements("report");
    let [ask_too, renew_too, release_too, _] = &statements("print");
    let asked = async |ask: &str| db.query_one(ask, &[]).await.expect("an answer");
    assert_eq!(asked(ask).await.get::<_, Option<i32>>("nth"), None);
    assert_eq!(asked(ask).await.get::<_, Option<i32>>("nth"), None, "it holds the lock");
    let refused = asked(ask_too).await;
    assert_eq!(refused.get::<_, Option<i32>>("nth"), Some(0));
    assert!(refused.get::<_, &str>("holder").starts_with("report/"));
    assert!((1..=300_000).contains(&refused.get::<_, i64>("rest")));
    assert!(asked(renew).await.get::<_, bool>(0) && !asked(renew_too).await.get::<_, bool>(0));
    assert!(!asked(release_too).await.get::<_, bool>("held"));

    let waiting = is_waiting(&locks, &db).await;
    let released = asked(release).await;
    assert!(released.get::<_, bool>("held"));
    let (channels, pushes): (Vec<String>, Vec<String>) = (released.get(1), released.get(2));
    db.query(push, &[&channels, &pushes]).await.expect("sent");
    is_served(waiting).await.release().await.expect("still held");
}

#[tokio::test]
async fn the_last_fence_of_a_grant_is_valid_until_the_next_grant() {
    let server = Postgres::start().await;
    let (_locks, db) = (manager(&server).await, server.connect().await);
    let asked = async |statement: &str| db.query_one(statement, &[]).await.expect("an answer");
    let check =
        async |fence: i64| is_in_time(&db, "CALL lm1.check_fence($1, $2)", "order:42", fence).await;
    let mut last = None;
    for _ in 0..3 {
        let [ask, _, release, _] = &statements("report");
        let fences = asked(&ask.replace("false", "true")).await.get::<_, Vec<String>>("fences");
        let fence = fences[0].rsplit('-').next().expect("a number").parse().expect("a number");
        assert!(last < Some(fence) && check(fence).await);
        if let Some(late) = last.replace(fence) {
            assert!(!check(late).await);
        }
        assert!(asked(release).await.get::<_, bool>("held"));
    }
}

/// Bodies of each caller, of which there are [`TASKS`] and [`PROCESSES`].
const BODIES: usize = 60;
const TASKS: usize = 3;
const PROCESSES: usize = 2;
const CALLERS: usize = TASKS + PROCESSES;

/// What bodies read and write outside of their lock. `most` is how many were inside at once.
/// `visits` loses those that overlap, as each is written from what was read. `turns` counts the
/// changes of the language.
const ROOM: &str = "
    CREATE TABLE room (came int, inside int, most int, visits int, turns int, last text);
    INSERT INTO room VALUES (0, 0, 0, 0, 0, '');
    CREATE FUNCTION enter(who text) RETURNS int LANGUAGE sql AS $$
        UPDATE room SET inside = inside + 1, most = greatest(most, inside + 1),
            turns = turns + (last <> who)::int, last = who RETURNING visits
    $$;
    CREATE FUNCTION leave(seen int) RETURNS void LANGUAGE sql AS $$
        UPDATE room SET inside = inside - 1, visits = seen + 1
    $$";

/// It asks again after a pause, as it has no place in the queue. Its bodies are apart for a while,
/// so that those of others are between them.
const WORKER: &str = "\
import random, sys, time
from lock_postgres import *

url, bodies, ignores = sys.argv[1:]
db, room = connect(url), connect(url)
ask(room, 'UPDATE room SET came = came + 1 RETURNING came')
for _ in range(int(bodies)):
    while not (token := acquire(db, 'order:42', 60000)) and ignores == 'false':
        time.sleep(random.random() / 500)
    (seen,) = ask(room, \"SELECT enter('python')\")
    ask(room, f'SELECT leave({seen})')
    assert token is None or release(db, 'order:42', token)
    time.sleep(random.random() / 100)
";

#[distributed_lock(key = "order:<id>", ttl = "1m", wait = forever, manager = locks)]
async fn visit(locks: &LockManager, room: &Client, id: u64) -> Result<(), LockError> {
    let seen = room.query_one("SELECT enter('rust')", &[]).await.expect("an answer");
    room.execute("SELECT leave($1)", &[&seen.get::<_, i32>(0)]).await.expect("an answer");
    Ok(())
}

#[derive(Debug)]
struct Seen {
    most: i32,
    visits: usize,
    turns: usize,
}

/// Callers in both languages, each with so many bodies of the same key.
async fn visits(bodies: usize, python_ignores_refusals: bool) -> Seen {
    let server = Postgres::start().await;
    let observer = server.connect().await;
    observer.batch_execute(ROOM).await.expect("made");
    let managers = [manager(&server).await, manager(&server).await];
    let tasks = try_join_all((0..TASKS).map(|nth| {
        let (server, locks) = (&server, &managers[nth % managers.len()]);
        async move {
            let room = server.connect().await;
            // They take longer to start.
            eventually("the processes have come", TEST_TIMEOUT, || async {
                let came = room.query_one("SELECT came FROM room", &[]).await.expect("an answer");
                usize::try_from(came.get::<_, i32>(0)) == Ok(PROCESSES)
            })
            .await;
            for _ in 0..bodies {
                visit(locks, &room, 42).await?;
                // Somebody who asks again is never served beside a queue that is never empty.
                sleep(Duration::from_millis(fastrand::u64(0..10))).await;
            }
            Ok::<_, LockError>(())
        }
    }));
    let processes = join_all((0..PROCESSES).map(|_| async {
        let mut worker = Command::from(python(WORKER, &server));
        worker.args([bodies.to_string(), python_ignores_refusals.to_string()]);
        let ended = worker.kill_on_drop(true).status().await;
        assert!(ended.expect("this test needs python3").success(), "a process has failed");
    }));
    let (ended, _) = in_time(async { tokio::join!(tasks, processes) }).await;
    ended.expect("all are served");
    server.keeps_nothing("").await;
    let row = observer.query_one("SELECT most, visits, turns FROM room", &[]).await.expect("a row");
    let count = |nth| usize::try_from(row.get::<_, i32>(nth)).expect("a number");
    Seen { most: row.get(0), visits: count(1), turns: count(2) }
}

/// `PYTHON_BODIES` is another number of bodies of each caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_in_python_and_in_rust_never_overlap() {
    let bodies = std::env::var("PYTHON_BODIES");
    let bodies = bodies.map_or(BODIES, |bodies| bodies.parse().expect("a number"));
    let seen = visits(bodies, false).await;
    println!("{seen:?}");
    assert_eq!((seen.most, seen.visits), (1, bodies * CALLERS), "{seen:?}");
    // On a loaded machine one language may be nearly done when the other one begins.
    assert!(seen.turns > 2, "one language after the other: {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_in_python_that_ignores_a_refusal_is_noticed() {
    let seen = visits(BODIES, true).await;
    assert!(seen.most > 1 && seen.visits < BODIES * CALLERS, "{seen:?}");
}
