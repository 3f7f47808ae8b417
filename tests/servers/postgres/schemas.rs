//! The database and the schema that a URL names.

use futures::future::join_all;
use lockmacro_runtime::inspect::{install_schema, schema};
use lockmacro_runtime::{LockError, LockManager};
use lockmacro_tests::times::LONG_TTL;
use lockmacro_tests::{Postgres, eventually};
use tokio::time::Instant;

use crate::upgrade::made_by_version_2;
use crate::{SLACK, TIMEOUT, lock, manager, shared, works};

/// The error of connecting, which must be a mistake in the setting.
async fn mistake(url: &str, of: &str) -> String {
    let error = LockManager::builder().timeout(TIMEOUT).connect(url).await.expect_err("a mistake");
    match &error {
        LockError::InvalidSetting { setting, .. } => assert_eq!(*setting, of, "{error}"),
        other => panic!("not `InvalidSetting`: {other:?}"),
    }
    error.to_string()
}

#[tokio::test]
async fn a_schema_that_is_missing_is_a_mistake_that_says_what_to_do() {
    let server = shared().await;
    let error = mistake(&server.url_of("postgres", "schema=missing"), "schema").await;
    assert!(error.contains("\"missing\" does not exist"), "{error}");
    assert!(error.contains("`install=1`"), "{error}");
    // One that was made for it.
    server.execute("CREATE SCHEMA empty_one").await;
    works(&manager(&server.url_of("postgres", "install=1&schema=empty_one")).await, "empty").await;
}

#[tokio::test]
async fn a_schema_with_other_things_in_it_is_refused_and_stays_as_it_is() {
    let server = shared().await;
    let others = "CREATE SCHEMA others; CREATE TABLE others.call (id int);
        CREATE FUNCTION others.theirs() RETURNS int LANGUAGE sql AS 'SELECT 7'";
    server.execute(others).await;
    let url = server.url_of("postgres", "install=1&schema=others");
    assert!(mistake(&url, "schema").await.contains("has other things in it"));
    let client = server.connect().await;
    let error =
        client.batch_execute(&schema("others").expect("a name")).await.expect_err("refused");
    assert!(error.as_db_error().is_some_and(|e| e.message().contains("other things")), "{error:?}");
    let left = "SELECT count(*), bool_and(has_function_privilege('public', p.oid, 'EXECUTE'))
        FROM pg_proc p WHERE pronamespace = 'others'::regnamespace";
    let row = client.query_one(left, &[]).await.expect("an answer");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, bool>(1)), (1, true));
}

#[tokio::test]
async fn an_upgrade_grants_new_functions_to_those_who_could_lock_and_revokes_none_of_others() {
    let server = shared().await;
    made_by_version_2(&server, "mixed", "postgres").await;
    let url = server.url_of("postgres", "install=1&schema=mixed");
    let others = "CREATE ROLE mixer LOGIN; GRANT USAGE ON SCHEMA mixed TO mixer;
        GRANT EXECUTE ON ALL ROUTINES IN SCHEMA mixed TO mixer;
        CREATE FUNCTION mixed.theirs() RETURNS int LANGUAGE sql AS 'SELECT 7';
        CREATE FUNCTION mixed.secret() RETURNS int LANGUAGE sql AS 'SELECT 7';
        REVOKE ALL ON FUNCTION mixed.secret FROM PUBLIC";
    server.execute(others).await;
    let installed = install_schema(&url).await.expect("upgraded");
    assert_eq!((installed.before, installed.version), (Some(2), 4));
    assert_eq!(install_schema(&url).await.expect("there").before, Some(4));
    let may = "SELECT has_function_privilege('public', 'mixed.theirs()', 'EXECUTE'),
        has_function_privilege('public', 'mixed.record_fence(text, bigint)', 'EXECUTE')";
    let row = server.connect().await.query_one(may, &[]).await.expect("an answer");
    assert_eq!((row.get::<_, bool>(0), row.get::<_, bool>(1)), (true, false));
    works(&manager(&server.url_of("mixer", "schema=mixed")).await, "mixed").await;
}

#[tokio::test]
async fn what_a_superuser_installs_for_another_owner_has_the_rights_of_that_owner() {
    let server = shared().await;
    server.execute("CREATE ROLE tenant LOGIN; CREATE SCHEMA tenant AUTHORIZATION tenant").await;
    made_by_version_2(&server, "tenant", "tenant").await;
    let url = server.url_of("tenant", "install=1&schema=tenant");
    let trap = "SET ROLE tenant; CREATE TABLE tenant.seen (who text);
        CREATE FUNCTION tenant.note() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN INSERT INTO tenant.seen VALUES (current_user); RETURN NEW; END $$;
        CREATE TRIGGER note BEFORE INSERT OR UPDATE ON tenant.lease
            FOR EACH ROW EXECUTE FUNCTION tenant.note();
        DROP FUNCTION tenant.keep, tenant.renew;
        CREATE OR REPLACE FUNCTION tenant.version() RETURNS int LANGUAGE sql AS 'SELECT 2'";
    server.execute(trap).await;
    let superuser = url.replace("tenant@", "postgres@");
    assert_eq!(install_schema(&superuser).await.expect("upgraded").before, Some(2));
    works(&manager(&superuser).await, "tenant").await;
    let seen = "SELECT DISTINCT who FROM tenant.seen UNION
        SELECT DISTINCT proowner::regrole::text FROM pg_proc
            WHERE pronamespace = 'tenant'::regnamespace";
    assert_eq!(server.ask(seen), ["tenant"]);
    server.execute("ALTER FUNCTION tenant.renew OWNER TO postgres").await;
    for url in [&superuser, &url] {
        let error = mistake(url, "schema").await;
        assert!(error.contains("ALTER ROUTINE tenant.renew(") && error.contains("OWNER TO tenant"));
    }
    server.execute("CREATE ROLE nobody_s LOGIN; GRANT ALL ON SCHEMA tenant TO nobody_s").await;
    server.execute("ALTER FUNCTION tenant.renew OWNER TO tenant; DROP FUNCTION tenant.look").await;
    let earlier =
        "CREATE OR REPLACE FUNCTION tenant.version() RETURNS int LANGUAGE sql AS 'SELECT 2'";
    server.execute(earlier).await;
    let error = mistake(&url.replace("tenant@", "nobody_s@"), "schema").await;
    assert!(error.contains("belongs to tenant: install it as that user"), "{error}");
}

/// A better match than what PostgreSQL has would be called with the rights of who installs.
#[tokio::test]
async fn an_installation_calls_nothing_that_others_have_made() {
    let server = Postgres::start().await;
    let traps = "CREATE TABLE public.seen (who text);
        CREATE FUNCTION public.gather(text[], text) RETURNS text[] LANGUAGE plpgsql AS $$
            BEGIN INSERT INTO public.seen VALUES (current_user); RETURN $1 || $2; END $$;
        CREATE AGGREGATE public.array_agg (text) (SFUNC = public.gather, STYPE = text[]);
        CREATE FUNCTION public.same(oid, regnamespace) RETURNS boolean LANGUAGE plpgsql AS $$
            BEGIN INSERT INTO public.seen VALUES (current_user); RETURN $1 = $2::oid; END $$;
        CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regnamespace, FUNCTION = public.same)";
    server.execute(traps).await;
    for before in [None, Some(4)] {
        let url = server.url_of("postgres", "");
        assert_eq!(install_schema(&url).await.expect("made").before, before);
    }
    works(&manager(&server.url()).await, "traps").await;
    assert_eq!(server.ask("SELECT who FROM public.seen"), [""; 0]);
}

/// Where it is off, a backslash in a string begins an escape.
#[tokio::test]
async fn an_installation_is_the_same_whatever_strings_a_role_has() {
    let server = shared().await;
    server.execute("CREATE ROLE escaping LOGIN SUPERUSER").await;
    server.execute("ALTER ROLE escaping SET standard_conforming_strings = off").await;
    let url = server.url_of("escaping", "schema=escaped");
    made_by_version_2(&server, "escaped", "escaping").await;
    for before in [2, 4] {
        assert_eq!(install_schema(&url).await.expect("installed").before, Some(before));
    }
    works(&manager(&url).await, "escaped").await;
    for name in ["escaped", "escaped_new"] {
        let client = server.connect().await;
        let off = "SET standard_conforming_strings = off";
        client.batch_execute(off).await.expect("set");
        client.batch_execute(&schema(name).expect("a name")).await.expect("it is SQL");
    }
    let url = server.url_of("escaping", "schema=escaped_new");
    assert_eq!(install_schema(&url).await.expect("there").before, Some(4));
}

/// As `pg_dump` does.
async fn reader(server: &Postgres, tables: &str) -> tokio_postgres::Client {
    let reader = server.connect().await;
    let reads = format!("SET application_name = 'dump'; BEGIN; LOCK {tables} IN ACCESS SHARE MODE");
    reader.batch_execute(&reads).await.expect("locked");
    reader
}

#[tokio::test]
async fn an_upgrade_that_changes_no_table_waits_for_no_reader() {
    let server = shared().await;
    let url = server.url_of("postgres", "install=1&schema=read");
    let _ = manager(&url).await;
    let earlier = "CREATE OR REPLACE FUNCTION read.version() RETURNS int
        LANGUAGE sql IMMUTABLE AS 'SELECT 2'; DROP FUNCTION read.look(text)";
    server.execute(earlier).await;
    let _reader = reader(&server, "read.lease, read.fence, read.share, read.call").await;
    assert_eq!(install_schema(&url).await.expect("upgraded").before, Some(2));
}

#[tokio::test]
async fn an_upgrade_names_the_reader_that_it_waits_for_and_lets_calls_through_meanwhile() {
    let server = shared().await;
    made_by_version_2(&server, "dumped", "postgres").await;
    let url = server.url_of("postgres", "install=1&schema=dumped");
    let reader = reader(&server, "dumped.lease").await;
    let error = LockManager::builder().timeout(TIMEOUT).connect(&url).await.expect_err("read");
    let pid: i32 = reader.query_one("SELECT pg_backend_pid()", &[]).await.expect("one").get(0);
    let names = format!("process {pid}, postgres, dump, since");
    assert!(error.to_string().contains(&names), "{error}");
    let installing = tokio::spawn(async move { install_schema(&url).await });
    eventually("it waits", LONG_TTL, || async {
        let waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted
            AND relation = 'dumped.lease'::regclass AND mode = 'AccessExclusiveLock'";
        server.connect().await.query_one(waits, &[]).await.expect("an answer").get(0)
    })
    .await;
    for _ in 0..5 {
        // Behind the lock that is waited for.
        let start = Instant::now();
        server.execute("SELECT count(*) FROM dumped.lease").await;
        assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    }
    assert!(!installing.is_finished());
    reader.batch_execute("COMMIT").await.expect("ended");
    let installed = installing.await.expect("no panic").expect("upgraded");
    assert_eq!(installed.before, Some(2));
}

#[tokio::test]
async fn an_older_schema_is_a_mistake_until_it_is_replaced_and_a_newer_one_is_used() {
    let server = shared().await;
    let (url, installs) = (
        server.url_of("postgres", "schema=other"),
        server.url_of("postgres", "schema=other&install=1"),
    );
    let earlier = manager(&installs).await;
    let guard = lock(&earlier, "other").acquire().await.expect("free");
    let version = |nth: u32| {
        format!(
            "CREATE OR REPLACE FUNCTION other.version() RETURNS int
            LANGUAGE sql IMMUTABLE AS 'SELECT {nth}'"
        )
    };
    server.execute(&version(0)).await;
    // As of an older program that knows less.
    server.execute("DROP FUNCTION other.look(text)").await;
    let error = mistake(&url, "schema").await;
    assert!(error.contains("version 0") && error.contains("postgres install"), "{error}");
    // In the middle of a deployment: the one before goes on, with the lock that it holds.
    let later = manager(&installs).await;
    assert!(lock(&later, "other").acquire().await.expect_err("held").is_busy());
    assert!(later.inspector().lock("other").await.expect("there").is_some());
    works(&earlier, "other: 2").await;
    guard.release().await.expect("still held");
    server.execute(&version(99)).await;
    for url in [&url, &installs] {
        works(&manager(url).await, "other").await;
    }
}

#[tokio::test]
async fn a_schema_that_cannot_be_named_so_is_a_mistake() {
    let server = shared().await;
    for name in ["user", "1locks", "pg_locks", "Locks"] {
        mistake(&server.url_of("postgres", &format!("schema={name}&install=1")), "schema").await;
    }
    let error = mistake(&server.url_of("postgres", "schema=user"), "schema").await;
    assert!(error.contains("choose another"), "{error}");
}

#[tokio::test]
async fn a_database_that_is_missing_is_a_mistake_in_the_url() {
    let server = shared().await;
    let url = server.url().replace("/postgres?", "/nowhere?");
    assert!(mistake(&url, "url").await.contains("\"nowhere\" does not exist"));
}

#[tokio::test]
async fn another_schema_has_other_locks() {
    let server = shared().await;
    let here = manager(&server.url()).await;
    let there = manager(&server.url_of("postgres", "install=1&schema=there")).await;
    let one = lock(&here, "schemas").acquire().await.expect("free");
    let other = lock(&there, "schemas").acquire().await.expect("another one");
    let third = manager(&server.url_of("postgres", "schema=there")).await;
    assert!(lock(&third, "schemas").acquire().await.expect_err("held").is_busy());
    one.release().await.expect("still held");
    other.release().await.expect("still held");
    server.keeps_nothing("schemas").await;
}

#[tokio::test]
async fn managers_that_make_the_schema_at_the_same_moment_all_succeed() {
    let server = shared().await;
    for round in 0..3 {
        let url = server.url_of("postgres", &format!("install=1&schema=rush{round}"));
        let managers = join_all((0..6).map(|_| manager(&url))).await;
        works(&managers[round], "rush").await;
    }
}

/// `B` is before `a` in the order of bytes, and not in that of words.
#[tokio::test]
async fn unused_keys_are_removed_in_a_database_that_sorts_words() {
    let server = Postgres::start().await;
    let words = "CREATE DATABASE words TEMPLATE template0
        LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'";
    server.connect().await.batch_execute(words).await.expect("made");
    let url = server.url().replace("/postgres?", "/words?");
    works(&manager(&url).await, "words").await;
    let place = format!("host=127.0.0.1 port={} user=postgres dbname=words", server.port());
    let (client, connection) =
        tokio_postgres::connect(&place, tokio_postgres::NoTls).await.expect("let in");
    tokio::spawn(connection);
    let unused = "INSERT INTO lm1.lease SELECT 'a' || n, NULL, '-infinity', 'epoch'
            FROM generate_series(1, 1500) n;
        INSERT INTO lm1.fence SELECT 'B' || n, 1, 1, 0, 'epoch' FROM generate_series(1, 3500) n";
    client.batch_execute(unused).await.expect("inserted");
    let mut after = Some(String::new());
    while let Some(key) = after {
        let tidied = client.query_one("SELECT lm1.tidy(60000, $1)", &[&key]).await;
        after = tidied.expect("an answer").get(0);
    }
    let left = "SELECT (SELECT count(*) FROM lm1.lease WHERE key <> 'words'),
        (SELECT count(*) FROM lm1.fence)";
    let row = client.query_one(left, &[]).await.expect("an answer");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (0, 0));
}
