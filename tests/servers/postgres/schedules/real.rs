//! The functions in a schema of their own, called through one connection; another one writes.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

use super::twin::{Reply, Row};

const SCHEMA: &str = concat!(
    include_str!("../../../../lockmacro-runtime/src/store/postgres/schema.sql"),
    include_str!("../../../../lockmacro-runtime/src/defer/queue/postgres/jobs.sql")
);

/// In the order of `Real::calls`. A lock that is kept has a token that only the server knows, which
/// begins with zeros.
const CALLS: [&str; 10] = [
    "SELECT * FROM lm1.ask($1, $2, $3, $4, $5, $6, $7, $8, $9, NULL)",
    "SELECT * FROM lm1.release($1, $2, $3)",
    "SELECT lm1.renew($1, $2, $3)",
    "CALL lm1.check_fence($1, $2)",
    "SELECT lm1.tidy(60000, $1)",
    "SELECT token, sharing, waiting FROM lm1.look($1)",
    "WITH a AS (UPDATE lm1.lease SET used = clock_timestamp() - interval '2 min' WHERE key = ANY($1))
        UPDATE lm1.fence SET used = clock_timestamp() - interval '2 min' WHERE key IN (
            SELECT key FROM lm1.fence WHERE key = ANY($2) FOR UPDATE SKIP LOCKED)",
    "UPDATE lm1.fence SET first = fence + $2, fence = fence + $2 WHERE key = $1",
    "WITH at AS (SELECT clock_timestamp() - interval '2 min' AS at),
        a AS (UPDATE lm1.lease SET ends = at FROM at WHERE key = ANY($1) AND starts_with(token, $2)),
        b AS (UPDATE lm1.share SET ends = at FROM at WHERE key = ANY($1) AND starts_with(token, $2))
        UPDATE lm1.waiter SET ends = at FROM at WHERE key = ANY($1) AND starts_with(token, $2)",
    "SELECT kind, key, what, lm1.micros(greatest(ends, 'epoch')), lm1.micros(used) FROM (
            SELECT 'fence' AS kind, key, 0 AS place, concat_ws(' ', first, fence, checked) AS what,
                'epoch'::timestamptz AS ends, 'epoch'::timestamptz AS used FROM lm1.fence
            UNION ALL SELECT 'lease', key, 0, coalesce(CASE WHEN token LIKE '%/0000000000000000%'
                THEN left(token, -32) || 'kept' ELSE token END, '-'), ends, used FROM lm1.lease
            UNION ALL SELECT 'share', key, 0, CASE WHEN token LIKE '%/0000000000000000%'
                THEN left(token, -32) || 'kept' ELSE token END, ends, 'epoch' FROM lm1.share
            UNION ALL SELECT 'waiter', key, place, concat_ws(
                ' ', token, ttl, holders, fenced, id, channel, callers), ends, 'epoch' FROM lm1.waiter
            UNION ALL SELECT 'z', ($1::text[])[1], 0, '', clock_timestamp(), 'epoch'
        ) x WHERE key = ANY($1) ORDER BY kind, key, place, what COLLATE \"C\"",
];

#[derive(Debug, Clone, Copy)]
pub enum Call {
    Ask,
    Release,
    Renew,
    Check,
    Tidy,
    Show,
    Age,
    Advance,
    Expire,
    Look,
}

pub struct Real {
    pub client: Client,
    calls: Vec<Statement>,
    pub writer: Client,
    check: Statement,
    pub schema: String,
    pub pid: i32,
}

pub type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Real {
    /// Makes the schema, with a passage of it replaced by another one.
    pub async fn new(
        [client, writer]: [Client; 2],
        schema: &str,
        (old, new): (&str, &str),
    ) -> Self {
        assert!(SCHEMA.contains(old), "the functions have no longer: {old}");
        let named = |text: &str| text.replace("lm1", schema);
        let made = format!("CREATE SCHEMA lm1; {}", SCHEMA.replace(old, new));
        client.batch_execute(&named(&made)).await.expect("it is made");
        // A function without an end is a finding.
        for client in [&client, &writer] {
            client.batch_execute("SET statement_timeout = '2s'").await.expect("it is set");
        }
        let mut calls = Vec::new();
        for call in CALLS {
            calls.push(client.prepare(&named(call)).await.expect("a function"));
        }
        let check = writer.prepare(&named(CALLS[Call::Check as usize])).await;
        let pid = client.query_one("SELECT pg_backend_pid()", &[]).await.expect("an answer").get(0);
        let (check, schema) = (check.expect("a function"), schema.to_owned());
        Self { client, calls, writer, check, schema, pid }
    }

    pub async fn call(
        &self,
        call: Call,
        values: Values<'_>,
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        self.client.query(&self.calls[call as usize], values).await
    }

    pub async fn check(&self, key: &str, fence: i64) -> Result<(), Error> {
        self.writer.execute(&self.check, &[&key, &fence]).await.map(drop)
    }

    /// The rows of keys, and the clock.
    pub async fn look(&self, keys: &[String]) -> Result<(Vec<Row>, i64), Error> {
        let rows = self.call(Call::Look, &[&keys]).await?;
        let row = |r: &tokio_postgres::Row| (r.get(0), r.get(1), r.get(2), r.get(3), r.get(4));
        let mut rows: Vec<Row> = rows.iter().map(row).collect();
        let clock = rows.pop().expect("the clock").3;
        Ok((rows, clock))
    }
}

/// The reply to a request.
pub fn asked(row: &tokio_postgres::Row) -> Reply {
    let fences: Option<Vec<Option<String>>> = row.get(5);
    Reply {
        held: Vec::new(),
        nth: row.get(0),
        holder: row.get::<_, Option<String>>(1).into_iter().collect(),
        rest: row.get(2),
        rank: row.get(3),
        fences: fences.into_iter().flatten().flatten().collect(),
        pushes: pushes(row, 6),
    }
}

/// The reply to a release.
pub fn released(row: &tokio_postgres::Row) -> Reply {
    Reply { held: vec![row.get(0)], pushes: pushes(row, 1), ..Reply::default() }
}

fn pushes(row: &tokio_postgres::Row, from: usize) -> Vec<(String, String)> {
    let (channels, pushes): (Vec<String>, Vec<String>) = (row.get(from), row.get(from + 1));
    channels.into_iter().zip(pushes).collect()
}
