//! The upgrade of a schema that version 2 has made, with all that its functions have stored, and
//! while programs of version 2 call them.

use std::cell::Cell;
use std::future::pending;

use futures::future::join_all;
use lockmacro_runtime::LockError;
use lockmacro_runtime::defer::{NewJob, Settled, TakeOptions};
use lockmacro_runtime::inspect::{install_schema, schema};
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};
use lockmacro_tests::{Postgres, eventually, in_time, is_in_time};
use tokio::time::sleep;
use tokio_postgres::{Client, Error, Row};

use crate::{lock, manager, shared};

/// What version 2 made.
const VERSION_2: &str = include_str!("version_2.sql");

/// Makes a schema of version 2 that belongs to this owner.
pub(crate) async fn made_by_version_2(server: &Postgres, name: &str, owner: &str) {
    let made = format!("CREATE SCHEMA IF NOT EXISTS lm1 AUTHORIZATION {owner}; SET ROLE {owner}");
    let made = VERSION_2.replacen("CREATE SCHEMA IF NOT EXISTS lm1", &made, 1);
    server.execute(&made.replace("lm1", name)).await;
}

fn token() -> String {
    format!("two/{:032x}", fastrand::u128(..))
}

/// A call that asks for a key, with a place in its queue.
fn ask(key: &str, token: &str, holders: u32) -> String {
    let waiter = "'00000000000000000001', 'nobody', 1, 600000";
    format!("ask('{{{key}}}', '{token}', 60000, '{{{holders}}}', true, {waiter})")
}

/// A program of version 2, which knows the functions of that time alone.
struct Program {
    client: Client,
    schema: &'static str,
}

impl Program {
    async fn on(server: &Postgres, schema: &'static str) -> Self {
        Self { client: server.connect().await, schema }
    }

    async fn call(&self, call: &str) -> Result<Row, Error> {
        self.client.query_one(&format!("SELECT * FROM {}.{call}", self.schema), &[]).await
    }

    /// Returns the last fence, or the rank.
    async fn ask(&self, key: &str, token: &str, holders: u32) -> Result<i64, i32> {
        let row = self.call(&ask(key, token, holders)).await.expect("an answer");
        match row.get("nth") {
            None => Ok(last_fence(&row)),
            Some(0) => Err(row.get("rank")),
            Some(other) => panic!("the contended key is number {other}"),
        }
    }

    async fn holds(&self, key: &str, token: &str) -> bool {
        let row = self.call(&format!("renew('{{{key}}}', '{{{token}}}', '{{60000}}')")).await;
        row.expect("an answer").get::<_, Vec<bool>>(0) == [true]
    }

    /// Releases a key, and sends what is to be pushed. Returns whether it was held.
    async fn release(&self, key: &str, token: &str) -> bool {
        let row = self.call(&format!("release('{{{key}}}', '{token}', 0)")).await;
        let row = row.expect("an answer");
        let channels: Vec<String> = row.get("channels");
        let pushes: Vec<String> = row.get("pushes");
        let push = format!("SELECT {}.push($1, $2)", self.schema);
        self.client.query_one(&push, &[&channels, &pushes]).await.expect("sent");
        row.get("held")
    }
}

fn last_fence(row: &Row) -> i64 {
    let fences: Vec<String> = row.get("fences");
    fences[0].rsplit('-').next().and_then(|last| last.parse().ok()).expect("a number")
}

#[tokio::test]
async fn an_upgrade_from_version_2_keeps_holders_sharers_waiters_values_and_jobs() {
    let server = shared().await;
    made_by_version_2(&server, "kept_two", "postgres").await;
    let two = Program::on(&server, "kept_two").await;
    let holder = token();
    let sharers = [token(), token()];
    let waiters = [token(), token(), token()];
    let writer = token();
    let first = two.ask("held", &holder, 1).await.expect("free");
    for sharer in &sharers {
        two.ask("shared", sharer, 2).await.expect("free");
    }
    assert_eq!(two.ask("shared", &writer, 1).await, Err(0));
    for (waiter, rank) in waiters.iter().zip(0..) {
        assert_eq!(two.ask("held", waiter, 1).await, Err(rank));
    }
    two.call(&format!("keep('held', '{holder}', 'a value', 60000)")).await.expect("kept");
    two.call("put_call('job', 'one', 0, 'an argument', '', 'all', 3, 0)").await.expect("put");

    let url = server.url_of("postgres", "schema=kept_two&install=1");
    let ours = manager(&url).await;
    assert_eq!(install_schema(&url).await.expect("there").before, Some(4));

    assert!(two.holds("held", &holder).await && two.holds("shared", &sharers[0]).await);
    assert!(!two.holds("held", &waiters[0]).await);
    assert_eq!(two.call("kept('held')").await.expect("an answer").get::<_, &str>(0), "a value");
    let job = two.call("take_calls('{job}', 10, 60000, 'a request', false, NULL, NULL)").await;
    assert_eq!(job.expect("one call").get::<_, &str>("arguments"), "an argument");
    // The same request once more, as after an answer that was lost.
    let again = two.ask("held", &holder, 1).await.expect("it has it");
    assert!(first < again);

    // Those of before are before those of now.
    let waiting = tokio::spawn(lock(&ours, "held").wait(LONG_TTL).acquire_fenced());
    eventually("it waits behind the others", TEST_TIMEOUT, || async {
        let waiters = "SELECT FROM kept_two.waiter WHERE key = 'held'";
        two.client.query(waiters, &[]).await.expect("an answer").len() == 4
    })
    .await;
    let last = token();
    assert_eq!(two.ask("held", &last, 1).await, Err(4));
    assert_eq!(two.ask("held", &waiters[1], 1).await, Err(1), "it has its place");
    let mut before = holder;
    let mut fence = again;
    for waiter in waiters {
        assert!(two.release("held", &before).await);
        assert!(two.ask("held", &last, 1).await.is_err());
        let later = two.ask("held", &waiter, 1).await.expect("its turn");
        assert!(fence < later && two.holds("held", &waiter).await);
        fence = later;
        before = waiter;
    }
    assert!(!waiting.is_finished() && two.release("held", &before).await);
    let (guard, fences) = in_time(waiting).await.expect("no panic").expect("its turn");
    assert!(fence < i64::from(fences[0]));
    guard.release().await.expect("still held");
    assert!(two.ask("held", &last, 1).await.expect("its turn") > fence);
    assert!(two.release("held", &last).await);

    assert_eq!(two.ask("shared", &writer, 1).await, Err(0));
    assert!(two.release("shared", &sharers[0]).await);
    assert!(two.ask("shared", &writer, 1).await.is_err(), "beside the other");
    assert!(two.release("shared", &sharers[1]).await);
    two.ask("shared", &writer, 1).await.expect("its turn");
    assert!(lock(&ours, "shared").acquire().await.expect_err("held").is_busy());
    assert!(two.release("shared", &writer).await);
}

#[tokio::test]
async fn workers_of_either_version_run_the_calls_of_the_other() {
    let server = shared().await;
    made_by_version_2(&server, "jobs_two", "postgres").await;
    let two = Program::on(&server, "jobs_two").await;
    let ours = manager(&server.url_of("postgres", "schema=jobs_two&install=1")).await;
    let job_queue = ours.job_queue();

    two.call("put_call('job', 'two', 0, '[2]', 'a key', 'latest', 3, 0)").await.expect("put");
    let options = TakeOptions::new(["job"], 1, LONG_TTL);
    let taken = in_time(job_queue.take(options, Box::pin(pending()))).await;
    let job = taken.expect("taken").pop().expect("one");
    assert_eq!((&*job.id, &*job.arguments, &*job.key), ("two", "[2]", "a key"));
    assert_eq!(job_queue.settle(job, Settled::Done).await, Ok(true));

    job_queue.put(NewJob::new("job", "three", "[3]", "a key")).await.expect("stored");
    let job = two.call("take_calls('{job}', 10, 60000, 'a request', false, NULL, NULL)").await;
    let job = job.expect("one call");
    assert_eq!((job.get("id"), job.get("arguments")), ("three", "[3]"));
}

/// Version 2 took fences of other stores by `check_fence`.
#[tokio::test]
async fn an_upgrade_from_version_2_refuses_fences_that_were_late_before() {
    let server = shared().await;
    made_by_version_2(&server, "late_two", "postgres").await;
    let two = Program::on(&server, "late_two").await;
    let recorded = two.call("check_fence('elsewhere', 7)").await.expect("an answer");
    assert!(recorded.get::<_, bool>(0));
    let granted = two.ask("here", &token(), 1).await.expect("free");
    install_schema(&server.url_of("postgres", "schema=late_two")).await.expect("upgraded");
    let check = "CALL late_two.check_fence($1, $2)";
    let record = "CALL late_two.record_fence($1, $2)";
    for (call, key, fence, in_time) in [
        (record, "elsewhere", 6, false),
        (record, "elsewhere", 7, true),
        (check, "here", granted, true),
        (check, "here", granted - 300, false),
    ] {
        assert_eq!(is_in_time(&two.client, call, key, fence).await, in_time, "{key}: {fence}");
    }
    for (key, fence) in [("nowhere", 7_i64), ("elsewhere", 8)] {
        two.client.batch_execute("BEGIN").await.expect("begun");
        let error = two.client.execute(check, &[&key, &fence]).await.expect_err("never granted");
        assert_eq!(error.code().map(|code| code.code()), Some("LM002"), "{error:?}");
        two.client.batch_execute("ROLLBACK").await.expect("ended");
    }
}

/// What version 3 had in place of the procedures: functions whose answer could be left unread.
const VERSION_3: &str = "DROP PROCEDURE lm1.check_fence, lm1.record_fence;
    DROP FUNCTION lm1.hold_fence, lm1.hold_recorded, lm1.need_transaction,
        lm1.need_no_savepoint, lm1.need_direct_call;
    CREATE FUNCTION lm1.check_fence(k text, f bigint) RETURNS boolean
        LANGUAGE sql SECURITY DEFINER AS 'SELECT f >= fence FROM lm1.fence WHERE key = k';
    CREATE FUNCTION lm1.record_fence(k text, f bigint) RETURNS boolean
        LANGUAGE sql SECURITY DEFINER AS 'SELECT true';
    CREATE OR REPLACE FUNCTION lm1.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 3';
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lm1 FROM PUBLIC";

/// With the rights that it had, and no others.
#[tokio::test]
async fn a_program_of_version_3_whose_check_was_an_answer_fails_after_the_upgrade() {
    let server = shared().await;
    let url = server.url_of("postgres", "schema=answers");
    install_schema(&url).await.expect("made");
    server.execute(&VERSION_3.replace("lm1", "answers")).await;
    let roles = "CREATE ROLE checker LOGIN; CREATE ROLE recorder LOGIN; CREATE ROLE locker LOGIN;
        GRANT USAGE ON SCHEMA answers TO checker, recorder, locker;
        GRANT EXECUTE ON FUNCTION answers.check_fence TO checker;
        GRANT EXECUTE ON FUNCTION answers.record_fence TO recorder;
        GRANT EXECUTE ON FUNCTION answers.ask(text[], text, bigint, int[], boolean, text, text,
            int, bigint) TO locker";
    server.execute(roles).await;
    let three = Program::on(&server, "answers").await;
    let granted = three.ask("key", &token(), 1).await.expect("free");
    let earlier = format!("check_fence('key', {granted})");
    assert!(three.call(&earlier).await.expect("an answer").get::<_, bool>(0));
    assert_eq!(install_schema(&url).await.expect("upgraded").before, Some(3));
    let gone = three.call(&earlier).await.expect_err("there is no answer any more");
    assert_eq!(gone.code().map(|code| code.code()), Some("42809"), "{gone:?}");
    for (role, call) in [
        ("checker", "check_fence"),
        ("recorder", "record_fence"),
        ("locker", "check_fence"),
        ("checker", "record_fence"),
    ] {
        three.client.batch_execute(&format!("SET ROLE {role}; BEGIN")).await.expect("begun");
        let call = format!("CALL answers.{call}('key', $1)");
        let called = three.client.execute(&call, &[&granted]).await;
        let denied = called.err().and_then(|error| error.code().map(|code| code.code().to_owned()));
        let expected =
            (role == "locker" || call.contains("record") && role == "checker").then_some("42501");
        assert_eq!(denied.as_deref(), expected, "{role}: {call}");
        three.client.batch_execute("ROLLBACK; RESET ROLE").await.expect("ended");
    }
}

/// PostgreSQL knows what depends on a function that is not called by its name at each call.
#[tokio::test]
async fn an_upgrade_names_what_of_others_depends_on_a_routine_that_it_removes() {
    let server = shared().await;
    let url = server.url_of("postgres", "schema=needed");
    install_schema(&url).await.expect("made");
    server.execute(&VERSION_3.replace("lm1", "needed")).await;
    let theirs = "CREATE FUNCTION public.in_time(f bigint) RETURNS boolean LANGUAGE sql
            BEGIN ATOMIC SELECT needed.check_fence('key', f); END;
        CREATE VIEW public.recorded AS SELECT needed.record_fence('key', 7)";
    server.execute(theirs).await;
    for names in ["function public.in_time(bigint)", "view public.recorded"] {
        let error = install_schema(&url).await.expect_err("it is needed");
        let LockError::InvalidSetting { setting: "schema", detail, .. } = error else {
            panic!("not a mistake in the schema: {error:?}");
        };
        assert!(detail.contains(&format!("{names} depends on function needed.")), "{detail}");
        assert!(detail.contains("drop") && !detail.contains('\n'), "{detail}");
        server.execute(&format!("DROP {names}")).await;
    }
    assert_eq!(install_schema(&url).await.expect("upgraded").before, Some(3));
}

/// Every column, index and function of a schema, and the rights to it.
fn parts(server: &Postgres, name: &str) -> Vec<String> {
    let parts = server.ask(&format!(
        "SELECT concat_ws(' ', c.relname, c.relpersistence, c.reloptions, a.attname, a.attnum,
                format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
                a.attcollation, pg_get_expr(d.adbin, d.adrelid))
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
            WHERE c.relnamespace = '{name}'::regnamespace AND a.attnum > 0
        UNION SELECT indexdef FROM pg_indexes WHERE schemaname = '{name}'
        UNION SELECT pg_get_functiondef(oid) || coalesce(proacl::text, 'public') FROM pg_proc
            WHERE pronamespace = '{name}'::regnamespace
        ORDER BY 1"
    ));
    parts.iter().map(|part| part.replace(name, "lm1")).collect()
}

#[tokio::test]
async fn an_upgraded_schema_is_like_a_new_one_and_a_second_upgrade_changes_nothing() {
    let server = shared().await;
    made_by_version_2(&server, "as_upgraded", "postgres").await;
    for name in ["as_upgraded", "as_new"] {
        let url = server.url_of("postgres", &format!("schema={name}"));
        let installed = install_schema(&url).await.expect("installed");
        assert_eq!((installed.before, installed.version), ((name != "as_new").then_some(2), 4));
    }
    let upgraded = parts(&server, "as_upgraded");
    let new = parts(&server, "as_new");
    let differ: Vec<_> = upgraded.iter().filter(|part| !new.contains(part)).collect();
    assert!(differ.is_empty(), "{differ:#?}");
    assert_eq!(upgraded.len(), new.len());

    let written = "SELECT format('%s %s', oid, xmin) FROM pg_proc
            WHERE pronamespace = 'as_upgraded'::regnamespace
        UNION SELECT format('%s %s %s', attrelid, attname, a.xmin)
            FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
            WHERE relnamespace = 'as_upgraded'::regnamespace ORDER BY 1";
    let before = server.ask(written);
    server.execute(&schema("as_upgraded").expect("a name")).await;
    assert_eq!(server.ask(written), before);
}

/// What a call may fail with during an upgrade, and is repeated for: it has waited too long for a
/// row or a table, has a snapshot from before, or was chosen to end a deadlock.
fn passes(error: &Error) {
    let code = error.code().map(|code| code.code());
    assert!(matches!(code, Some("55P03" | "40001" | "40P01")), "{error:?}");
}

/// Who holds a key just now.
#[derive(Debug, Default)]
struct Holders {
    alone: Cell<usize>,
    sharing: Cell<usize>,
    fence: Cell<i64>,
    visits: Cell<usize>,
    upgraded: Cell<bool>,
}

impl Holders {
    const LIMIT: usize = 2;

    fn enter(&self, limit: usize, fence: i64) {
        let counter = if limit == 1 { &self.alone } else { &self.sharing };
        counter.set(counter.get() + 1);
        let alone = self.alone.get() == 1 && self.sharing.get() == 0;
        assert!(alone || self.alone.get() == 0 && self.sharing.get() <= limit, "{self:?}");
        assert!(limit > 1 || self.fence.replace(fence) < fence, "fences grow");
    }

    fn leave(&self, limit: usize) {
        let counter = if limit == 1 { &self.alone } else { &self.sharing };
        counter.set(counter.get() - 1);
        self.visits.set(self.visits.get() + 1);
    }

    /// Takes turns at the key by the calls of version 2, and some more after the upgrade.
    async fn visit(&self, client: Client, schema: &str) {
        let prepare = async |call: &str| {
            let statement = format!("SELECT * FROM {schema}.{call}");
            client.prepare(&statement).await.expect("prepared")
        };
        let waiter = "'00000000000000000001', 'nobody', 1, 60000";
        let ask = format!("ask('{{key}}', $1, 60000, ARRAY[$2::int], true, {waiter})");
        let ask = prepare(&ask).await;
        let renew = prepare("renew('{key}', ARRAY[$1], '{60000}')").await;
        let release = prepare("release('{key}', $1, 0)").await;
        let mut left = 12;
        while left > 0 {
            left -= i32::from(self.upgraded.get());
            let token = token();
            let holders = if left % 3 == 0 { Self::LIMIT } else { 1 };
            let limit = i32::try_from(holders).expect("small");
            let fence = loop {
                match client.query_one(&ask, &[&token, &limit]).await {
                    Ok(row) if row.get::<_, Option<i32>>("nth").is_none() => {
                        break last_fence(&row);
                    }
                    Ok(_) => sleep(ms(1)).await,
                    Err(error) => passes(&error),
                }
            };
            self.enter(holders, fence);
            let held = until_it_passes(async || client.query_one(&renew, &[&token]).await).await;
            assert_eq!(held.get::<_, Vec<bool>>(0), [true]);
            self.leave(holders);
            let held = until_it_passes(async || client.query_one(&release, &[&token]).await).await;
            assert!(held.get::<_, bool>("held"));
        }
    }
}

async fn until_it_passes<T>(call: impl AsyncFn() -> Result<T, Error>) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => passes(&error),
        }
    }
}

#[tokio::test]
async fn calls_of_version_2_exclude_each_other_before_and_during_and_after_an_upgrade() {
    const CLIENTS: usize = 8;
    let server = shared().await;
    for name in ["busy_a", "busy_b", "busy_c"] {
        made_by_version_2(&server, name, "postgres").await;
        let holders = Holders::default();
        let visits = join_all((0..CLIENTS).map(|_| async {
            holders.visit(server.connect().await, name).await;
        }));
        let upgrade = async {
            eventually("they take turns", TEST_TIMEOUT, || async {
                holders.visits.get() > 2 * CLIENTS
            })
            .await;
            let install = schema(name).expect("a name");
            let client = server.connect().await;
            until_it_passes(async || client.batch_execute(&install).await).await;
            holders.upgraded.set(true);
        };
        in_time(async { tokio::join!(visits, upgrade) }).await;
        let left = format!(
            "SELECT key FROM {name}.lease WHERE ends > clock_timestamp()
                UNION SELECT key FROM {name}.share UNION SELECT key FROM {name}.waiter"
        );
        assert_eq!(server.ask(&left), Vec::<String>::new());
    }
}

/// The answer to a call of version 2 that waits for a table which an upgrade changes, and then goes
/// on with the text of version 2. `held` is locked, and somebody waits for it.
async fn in_flight(server: &Postgres, call: &str, holder: &str) -> Result<Row, Error> {
    server.execute("DROP SCHEMA IF EXISTS flying CASCADE").await;
    made_by_version_2(server, "flying", "postgres").await;
    let two = Program::on(server, "flying").await;
    two.ask("held", holder, 1).await.expect("free");
    two.ask("held", &token(), 1).await.expect_err("held");
    let upgrader = server.connect().await;
    let upgrade = format!("BEGIN; {}", schema("flying").expect("a name"));
    upgrader.batch_execute(&upgrade).await.expect("upgraded");
    let commit = async {
        eventually("the call waits for a table", TEST_TIMEOUT, || async {
            let waits = "SELECT count(*) > 0 FROM pg_locks JOIN pg_class c ON c.oid = relation
                WHERE NOT granted AND relnamespace = 'flying'::regnamespace";
            upgrader.query_one(waits, &[]).await.expect("an answer").get(0)
        })
        .await;
        upgrader.batch_execute("COMMIT").await.expect("upgraded");
    };
    let (row, ()) = tokio::join!(two.call(call), commit);
    row
}

#[tokio::test]
async fn calls_of_version_2_that_are_in_flight_during_an_upgrade_end_well() {
    let server = shared().await;
    let holder = token();
    let answer =
        async |call: &str| until_it_passes(async || in_flight(&server, call, &holder).await).await;
    for holders in [1, 2] {
        let row = answer(&ask("free", &token(), holders)).await;
        assert!(row.get::<_, Option<i32>>("nth").is_none() && last_fence(&row) > 0);
    }
    assert_eq!(answer(&ask("held", &token(), 1)).await.get::<_, i32>("rank"), 1);
    assert!(last_fence(&answer(&ask("held", &holder, 1)).await) > 0);
    let row = answer(&format!("release('{{held}}', '{holder}', 0)")).await;
    assert!(row.get::<_, bool>("held") && row.get::<_, Vec<String>>("pushes").len() == 1);
}
