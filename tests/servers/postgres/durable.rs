//! Users whose transactions do not wait for the disk.

use lockmacro_runtime::Lock;
use lockmacro_tests::AcquireFenced as _;
use lockmacro_tests::times::{LONG_TTL, TEST_TIMEOUT, ms};
use lockmacro_tests::{Postgres, eventually};
use tokio_postgres::Client;

use crate::refusals::with_user;
use crate::{holder, is_renewed, is_waited_for, lock, manager, shared};

/// Nothing writes to the disk but the commits that wait for it.
const QUIET: [&str; 4] =
    ["wal_writer_delay=10s", "autovacuum=off", "bgwriter_delay=10s", "checkpoint_timeout=1h"];

/// The end of the log, of which the disk does not have all yet.
async fn unflushed_end(client: &Client) -> String {
    let end = "SELECT pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text";
    let row = client.query_one(end, &[]).await.expect("an answer");
    let (end, flushed): (String, String) = (row.get(0), row.get(1));
    assert_ne!(end, flushed, "the server waits for the disk");
    end
}

/// The disk has more of the log than up to there, so that it has a commit that came later.
async fn is_flushed_past(client: &Client, end: &str) {
    let flushed = format!("SELECT pg_current_wal_flush_lsn() > '{end}'::pg_lsn");
    let flushed: bool = client.query_one(&flushed, &[]).await.expect("an answer").get(0);
    assert!(flushed, "it is on the disk");
}

#[tokio::test]
async fn a_refused_request_waits_for_the_disk_only_where_it_hands_the_lock_off() {
    let server = shared().await;
    let _schema = manager(&server.url()).await;
    let client = server.connect().await;
    // In a transaction, whose commit would wait or not.
    let ask = async |token: &str, id: &str| {
        client.batch_execute("BEGIN").await.expect("begun");
        let ask = format!(
            "SELECT nth, cardinality(pushes) FROM lm1.ask('{{refused here}}', '{token}/{:032}', 60000,
                '{{1}}', false, {id}, 'channel', 1, 60000)",
            7
        );
        let row = client.query_one(&ask, &[]).await.expect("an answer");
        let waits = "SELECT current_setting('synchronous_commit') <> 'off'";
        let waits: bool = client.query_one(waits, &[]).await.expect("an answer").get(0);
        client.batch_execute("COMMIT").await.expect("committed");
        (row.get::<_, Option<i32>>(0), row.get::<_, i32>(1), waits)
    };
    assert_eq!(ask("holder", "NULL").await, (None, 0, true));
    assert_eq!(ask("waiter", "'00000000000000000001/7'").await, (Some(0), 0, false));
    let over = "UPDATE lm1.lease SET ends = '-infinity' WHERE key = 'refused here'";
    server.execute(over).await;
    assert_eq!(ask("other", "NULL").await, (Some(0), 1, true), "it is the waiter's turn");
    server.execute(over).await;
}

/// With `local` a commit waits for this server's disk, and not for the standby that may take over.
#[tokio::test]
async fn a_grant_waits_for_the_standby_whatever_the_users_settings() {
    let server = shared().await;
    let _schema = manager(&server.url()).await;
    let client = server.connect().await;
    let settings = [
        ("off", "on"),
        ("local", "on"),
        ("remote_write", "remote_write"),
        ("on", "on"),
        ("remote_apply", "remote_apply"),
    ];
    for (setting, used) in settings {
        let grant = format!(
            "BEGIN; SET LOCAL synchronous_commit = {setting};
            SELECT nth FROM lm1.ask('{{of the standby}}', 'holder/{:032}', 60000, '{{1}}', false,
                NULL, 'channel', 1, 60000)",
            7
        );
        client.batch_execute(&grant).await.expect("granted");
        let seen = client.query_one("SHOW synchronous_commit", &[]).await.expect("an answer");
        assert_eq!(seen.get::<_, String>(0), used, "{setting}");
        client.batch_execute("ROLLBACK").await.expect("an answer");
    }
}

#[tokio::test]
async fn grants_hand_offs_and_renewals_are_on_the_disk_whatever_the_users_settings() {
    // With -F it writes at the same moments, and does not wait for the disk itself.
    let settings = QUIET.iter().flat_map(|setting| ["-c", setting]);
    let settings: Vec<_> = ["-F"].into_iter().chain(settings).collect();
    let mut server = Postgres::with(&settings).await;
    let url = with_user(&server, "hasty", "SET synchronous_commit = off").await;
    let (ours, theirs) = (manager(&url).await, manager(&url).await);
    // As that user, to see that its other transactions do not wait.
    let place = format!("host=127.0.0.1 port={} user=hasty dbname=postgres", server.port());
    let (hasty, connection) =
        tokio_postgres::connect(&place, tokio_postgres::NoTls).await.expect("let in");
    tokio::spawn(connection);
    server.execute("CREATE TABLE note (word text); GRANT ALL ON note TO hasty").await;
    let client = server.connect().await;
    let unflushed = async |word: &str| {
        let note = format!("INSERT INTO note VALUES ('{word}')");
        hasty.batch_execute(&note).await.expect("allowed");
        unflushed_end(&client).await
    };
    let end = unflushed("before the grant").await;
    let (guard, first) = lock(&ours, "durable").acquire_fenced().await.expect("free");
    is_flushed_past(&client, &end).await;
    let waiting = tokio::spawn(lock(&theirs, "durable").wait(LONG_TTL).acquire_fenced());
    is_waited_for(&client, "durable").await;
    let end = unflushed("before the hand-off").await;
    guard.release().await.expect("still held");
    is_flushed_past(&client, &end).await;
    let (guard, later) = waiting.await.expect("no panic").expect("its turn");
    assert!(later[0] > first[0]);
    // A hand-off is for a shorter time. On a busy machine the confirmation comes much later.
    let is_confirmed = "SELECT FROM lm1.lease WHERE key = 'durable'
        AND ends > clock_timestamp() + interval '10 s'";
    eventually("the hand-off is confirmed", TEST_TIMEOUT, || async {
        client.query_opt(is_confirmed, &[]).await.expect("an answer").is_some()
    })
    .await;
    let renewed = Lock::new("durable: 2").ttl(ms(6_000)).renew().manager(&ours);
    let renewed = renewed.acquire().await.expect("free");
    let end = unflushed("before the renewal").await;
    is_renewed(&client, "durable: 2").await;
    is_flushed_past(&client, &end).await;
    unflushed("lost by the crash").await;
    let before = holder(&client, "durable").await;
    server.stop_at_once();
    server.restart().await;
    let client = server.connect().await;
    assert_eq!(holder(&client, "durable").await, before, "it is still held");
    let notes = client.query("SELECT word FROM note", &[]).await.expect("an answer");
    assert_eq!(notes.len(), 3, "the server forgets what is not on the disk");
    guard.release().await.expect("still held");
    renewed.release().await.expect("still held");
    server.keeps_nothing("durable").await;
}
