//! Mistakes in the functions that must be found: by a schedule, or by a call that waits for a row.

use std::pin::pin;
use std::slice::from_ref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;
use tokio_postgres::{Error, Row};

use super::real::{Call, Real, Values};
use super::{Outcome, run};
use crate::shared;

/// The number of schedules in which each mutant must be found.
const WITHIN: u64 = 60;
const WORKERS: usize = 4;

/// The change in words, a passage of the functions, and its replacement.
type Mutant = (&'static str, &'static str, &'static str);

#[rustfmt::skip]
const MUTANTS: &[Mutant] = &[
    ("an exclusive release without the compare",
        "IF l.token = tok OR lm1.shown(l.token) = tok THEN", "IF l.token IS NOT NULL THEN"),
    ("a sharing release without the compare",
        "DELETE FROM lm1.share x WHERE x.key = k AND x.token = tok RETURNING", "DELETE FROM lm1.share x WHERE x.key = k RETURNING"),
    ("an exclusive renewal without the compare",
        "AND x.token = a.tok AND x.ends > clock_timestamp()\n      RETURNING", "AND x.ends > clock_timestamp()\n      RETURNING"),
    ("a sharing renewal without the compare",
        "AND x.token = a.tok AND x.ends > clock_timestamp()\n        RETURNING", "AND x.ends > clock_timestamp()\n        RETURNING"),
    ("a renewal of an expired lease",
        "AND x.ends > clock_timestamp()\n      RETURNING", "\n      RETURNING"),
    ("an exclusive renewal that shortens",
        "UPDATE lm1.lease x SET ends = greatest(x.ends, clock_timestamp() + lm1.millis(a.ttl))", "UPDATE lm1.lease x SET ends = clock_timestamp() + lm1.millis(a.ttl)"),
    ("a sharing renewal that shortens",
        "UPDATE lm1.share x SET ends = greatest(x.ends, clock_timestamp() + lm1.millis(a.ttl))", "UPDATE lm1.share x SET ends = clock_timestamp() + lm1.millis(a.ttl)"),
    ("a sharing renewal that does not change the row of the key",
        "UPDATE lm1.lease SET used = clock_timestamp() WHERE key = ANY (sharing);", "NULL;"),
    ("a request by the clock of its transaction", "  t := clock_timestamp();\n  at :=", "  t := now();\n  at :="),
    ("a release by the clock of its transaction", "    t := clock_timestamp();\n    DELETE", "    t := now();\n    DELETE"),
    ("a renewal by the clock of its transaction",
        "UPDATE lm1.lease x SET ends = greatest(x.ends, clock_timestamp()", "UPDATE lm1.lease x SET ends = greatest(x.ends, now()"),
    ("a fence by the clock alone", "last := greatest(before + 1, lm1.micros(t))", "last := lm1.micros(t)"),
    ("a fence that is counted", "last := greatest(before + 1, lm1.micros(t))", "last := coalesce(before + 1, lm1.micros(t))"),
    ("a block that begins with fences of before", "greatest(before + 1, last - 255)", "last - 255"),
    ("a block after a forgotten fence", "CASE WHEN before IS NULL THEN last ELSE greatest(before + 1, last - 255) END", "greatest(before + 1, last - 255)"),
    ("a grant without a fence that leaves the last one", "IF before IS NULL AND NOT wanted THEN", "IF before IS NOT NULL AND NOT wanted THEN RETURN '';\n  ELSIF before IS NULL AND NOT wanted THEN"),
    ("a fence that is given while a transaction has locked it", "IF before IS NULL AND EXISTS (SELECT FROM lm1.fence WHERE key = k) THEN\n    RETURN NULL;", "IF before IS NULL AND EXISTS (SELECT FROM lm1.fence WHERE key = k) THEN\n    RETURN lm1.micros(t)::text;"),
    ("a hand-off that waits for a writer", "FOR UPDATE SKIP LOCKED;\n  IF before", "FOR UPDATE;\n  IF before"),
    ("a check that accepts an older fence", "f >= greatest(x.first, x.checked)", "f >= x.checked"),
    ("a check that accepts a fence before the last one checked", "f >= greatest(x.first, x.checked)", "f >= x.first"),
    ("a request that arrives again and gets new fences", "IF held AND coalesce(given, '') = '' THEN", "IF held THEN"),
    ("a check that accepts a larger fence than was granted", "  IF f <= last THEN", "  IF last IS NOT NULL THEN"),
    ("a check that calls a larger fence late", "  ELSIF f > last THEN", "  ELSIF false THEN"),
    ("a check that calls a key late that was never granted", "  IF last IS NULL THEN", "  IF false THEN"),
    ("a check that makes a key", "  UPDATE lm1.fence x SET checked", "  INSERT INTO lm1.fence VALUES (k, f, f, 0, clock_timestamp()) ON CONFLICT DO NOTHING;\n  UPDATE lm1.fence x SET checked"),
    ("a check that is not noted", "SET checked = f, used", "SET used"),
    ("a check that locks nothing", "  UPDATE lm1.fence x SET checked", "  IF EXISTS (SELECT FROM lm1.fence x WHERE x.key = k AND f BETWEEN greatest(x.first, x.checked) AND x.fence) THEN\n    RETURN;\n  END IF;\n  UPDATE lm1.fence x SET checked"),
    ("a request that shortens an exclusive lease", "t + lm1.millis(ttl), CASE WHEN token = tok THEN ends END", "t + lm1.millis(ttl)"),
    ("a request that shortens a shared lease", "DO UPDATE SET ends = greatest(s.ends, excluded.ends)", "DO UPDATE SET ends = excluded.ends"),
    ("a hand-off for the whole ttl", "least(w.ttl, 5000)", "w.ttl"),
    ("a hand-off for longer than the ttl", "least(w.ttl, 5000)", "5000"),
    ("a waiter that stays in the queue after its hand-off", "    DELETE FROM lm1.waiter WHERE key = k AND place = w.place;\n", ""),
    ("a waiter that stays in the queue after its grant", "    DELETE FROM lm1.waiter x WHERE x.key = keys[i] AND x.token = tok;\n", ""),
    ("a waiter that stays in the queue after it has left", "    DELETE FROM lm1.waiter x WHERE x.key = k AND x.token = tok;\n", ""),
    ("a queue in reverse", "WHERE key = k ORDER BY place LIMIT 1;\n    IF w.ends", "WHERE key = k ORDER BY place DESC LIMIT 1;\n    IF w.ends"),
    ("a refreshed waiter that moves to the end",
        "BEGIN\n  UPDATE lm1.waiter", "BEGIN\n  DELETE FROM lm1.waiter WHERE key = w.key AND token = w.token;\n  UPDATE lm1.waiter"),
    ("a place that is not refreshed", "callers = w.callers, ends = w.ends WHERE", "callers = w.callers WHERE"),
    ("a hand-off to an expired waiter", "    IF w.ends <= t THEN", "    IF false THEN"),
    ("a hand-off without its push", "pushes := pushes\n      || concat_ws('|', w.id,", "pushes := pushes\n      || concat_ws('|', '0',"),
    ("a release without a hand-off",
        "FROM lm1.pass(k, tok, t, channels, pushes) p;\n    IF mine", "FROM (SELECT channels, pushes) p;\n    IF mine"),
    ("a kept lock that is handed off", "ends = CASE WHEN mine AND keep > 0 THEN t + lm1.millis(keep) ELSE '-infinity' END", "ends = '-infinity'"),
    ("a lock that is kept by its token", "THEN lm1.kept_by(tok) END,", "THEN tok END,"),
    ("a kept lock that is told as a held one", "lm1.without_secret(holder, 'shared')", "left(holder, -32) || 'shared'"),
    ("a kept lock that nobody learns of", "channels := array_remove(channels, NULL);", "channels := '{}'; pushes := '{}';"),
    ("a kept share that is given up", "INSERT INTO lm1.share (key, token, ends)\n          VALUES (k, lm1.kept_by(tok), t + lm1.millis(keep));", "NULL;"),
    ("one holder too many", "holders > (", "holders >= ("),
    ("expired holders that count", "WHERE share.key = k AND share.ends > t", "WHERE share.key = k"),
    ("sharing beside an exclusive holder", "coalesce((SELECT ends <= t FROM lm1.lease WHERE key = k), false)", "true"),
    ("a hand-off that does not change the row of the key", "IF shared THEN", "IF false THEN"),
    ("a shared grant that does not change the row of the key", "      PERFORM lm1.note_sharing(keys[i], t);\n", ""),
    ("a shared grant that lets those behind it wait",
        "FROM lm1.pass(keys[i], tok, t, channels, pushes) p;", "FROM (SELECT channels, pushes) p;"),
    ("a request that overtakes the queue", "held := next = 'own' OR next = 'none' AND", "held := next = 'own' OR"),
    ("a contended request that keeps its fences", "      fences := NULL;\n", ""),
    ("a request for several keys of which some are granted", "      EXIT;\n    END IF;\n  END LOOP;\n  IF nth", "      PERFORM lm1.enter(keys[1], tok, ttl, holders[1], t) WHERE i > 1;\n      EXIT;\n    END IF;\n  END LOOP;\n  IF nth"),
    ("the longest lease instead of the next that ends", "THEN min(x.ends)", "THEN max(x.ends)"),
    ("a release by force of an expired share", "bool_or(gone.ends > t)", "true"),
    ("a release that is always held", "held := released = cardinality(keys)", "held := released >= 0"),
    ("a tidying that deletes a held key", "AND ends < clock_timestamp() AND used < unused", "AND used < unused"),
    ("a tidying that deletes a shared key", "        AND NOT EXISTS (SELECT FROM lm1.share s WHERE s.key = l.key AND s.ends > clock_timestamp())\n", ""),
    ("a tidying that deletes a key with waiters", "        AND NOT EXISTS (SELECT FROM lm1.waiter w WHERE w.key = l.key)\n", ""),
    ("a tidying that deletes fences in use", "AND used < clock_timestamp() - lm1.millis(retention)", ""),
    ("a tidying that deletes the fence of a key in use", "        AND NOT EXISTS (SELECT FROM lm1.lease l WHERE l.key = fence.key)\n", ""),
    ("a shared lease beside the one before it", "SET token = NULL, ends = '-infinity', used = t WHERE key = k;", "SET used = t WHERE key = k;"),
    ("a tidying that deletes shares in use", "DELETE FROM lm1.share WHERE ends < unused", "DELETE FROM lm1.share WHERE ends > unused"),
];

/// Those that one connection does not find.
#[rustfmt::skip]
const OF_TWO_CONNECTIONS: &[Mutant] = &[
    ("a request without the row", "PERFORM FROM lm1.lease WHERE key = k FOR UPDATE;", "PERFORM FROM lm1.lease WHERE key = k;"),
    ("a release without the row", "ORDER BY x.key FOR UPDATE LOOP", "ORDER BY x.key LOOP"),
    ("a renewal without the row", "    PERFORM FROM lm1.lease WHERE key = keys[1] FOR UPDATE;\n", ""),
    ("a request by a clock of before it has the row", "PERFORM lm1.lock_row(k);\n  END LOOP;\n  t := clock_timestamp();", "PERFORM lm1.lock_row(k);\n  END LOOP;\n  t := statement_timestamp();"),
    ("a release by a clock of before it has the row", "    t := clock_timestamp();\n    DELETE", "    t := statement_timestamp();\n    DELETE"),
];

/// What a call returns that waits for a row until another connection ends its transaction, and the
/// clock of just before that.
async fn waits(
    real: &Real,
    call: impl Future<Output = Result<Vec<Row>, Error>>,
) -> Result<(Row, i64), String> {
    let mut call = pin!(call);
    let failed = |error: Error| error.as_db_error().map_or(error.to_string(), ToString::to_string);
    let waits = "SELECT count(*) > 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
        FROM pg_locks WHERE NOT granted AND pid = $1";
    let clock = loop {
        tokio::select! {
            biased;
            done = &mut call => {
                done.map_err(failed)?;
                return Err("it does not wait".to_owned());
            }
            () = sleep(Duration::from_millis(2)) => {}
        }
        let row = real.writer.query_one(waits, &[&real.pid]).await.expect("an answer");
        if row.get(0) {
            break row.get(1);
        }
    };
    real.writer.batch_execute("COMMIT").await.expect("it ends");
    let mut rows = call.await.map_err(failed)?;
    Ok((rows.remove(0), clock))
}

/// Each function waits for the row of its key, and goes by the clock after that.
async fn rows_are_waited_for(real: &Real) -> Outcome {
    let key = format!("{:020}", fastrand::u64(..));
    let (keys, none) = (vec![&*key], None::<&str>);
    let lock = format!("BEGIN; SELECT FROM {}.lease WHERE key = '{key}' FOR UPDATE", real.schema);
    let begin = async || real.writer.batch_execute(&lock).await.expect("it is locked");
    let later = async |kind: &str, ttl: i64, clock: i64| {
        let rows = real.look(from_ref(&key)).await.expect("an answer").0;
        let row = rows.into_iter().find(|row| row.0 == kind && row.3 > clock);
        let ends = row.map(|row| row.3);
        ends.filter(|ends| *ends >= clock + ttl * 1_000)
            .map(drop)
            .ok_or(format!("{kind}: {ends:?}"))
    };
    for (token, holders) in [
        ("share/00000000000000000000000000000000", 0),
        ("lease/00000000000000000000000000000000", 1),
    ] {
        let kind = &token[..5];
        let (holders, fence) = (vec![holders], true);
        let ask = || async {
            let values: Values<'_> =
                &[&keys, &token, &4_000_i64, &holders, &fence, &none, &none, &1_i32, &0_i64];
            real.call(Call::Ask, values).await
        };
        ask().await.expect("it is free");
        begin().await;
        let (row, clock) = waits(real, ask()).await?;
        if row.get::<_, i64>(4) < clock {
            return Err("asked by an earlier clock".to_owned());
        }
        begin().await;
        let renewal: Values<'_> = &[&keys, &vec![token], &vec![9_000_i64]];
        let (_, clock) = waits(real, real.call(Call::Renew, renewal)).await?;
        later(kind, 9_000, clock).await?;
        begin().await;
        let release: Values<'_> = &[&keys, &token, &60_000_i64];
        let (_, clock) = waits(real, real.call(Call::Release, release)).await?;
        later(kind, 60_000, clock).await?;
        real.call(Call::Expire, &[&keys, &kind]).await.expect("it ends");
    }
    Ok(())
}

/// A loaded machine may be slower than the functions wait.
async fn rows(real: &Real) -> Outcome {
    for _ in 0..5 {
        let outcome = rows_are_waited_for(real).await;
        real.writer.batch_execute("ROLLBACK").await.expect("it ends");
        if !outcome.as_ref().is_err_and(|why| why.contains("lock timeout")) {
            return outcome;
        }
    }
    Err("it is never in time".to_owned())
}

#[tokio::test]
async fn a_call_waits_for_the_row_of_its_key_and_goes_by_the_clock_after_that() {
    let server = shared().await;
    let clients = [server.connect().await, server.connect().await];
    rows(&Real::new(clients, "rows", ("", "")).await).await.expect("they wait");
}

/// How a mutant is found.
async fn found(real: &Real, two: bool) -> Option<String> {
    if two {
        return rows(real).await.err().map(|why| format!("by two connections, {why}"));
    }
    for seed in 0..WITHIN {
        if let Err(why) = run(real, seed).await {
            let why = why.lines().next().unwrap_or_default();
            return Some(format!("in schedule {}, {why}", seed + 1));
        }
    }
    None
}

#[tokio::test]
async fn every_mutant_is_found() {
    let (server, next) = (shared().await, AtomicUsize::new(0));
    let worker = async || {
        let mut survivors = Vec::new();
        loop {
            let nth = next.fetch_add(1, Relaxed);
            let Some((name, old, new)) = OF_TWO_CONNECTIONS.iter().chain(MUTANTS).nth(nth) else {
                return survivors;
            };
            let clients = [server.connect().await, server.connect().await];
            let real = Real::new(clients, &format!("mutant{nth}"), (old, new)).await;
            match found(&real, nth < OF_TWO_CONNECTIONS.len()).await {
                Some(how) => println!("{name}: {how}"),
                None => survivors.push(*name),
            }
        }
    };
    let survivors = join_all((0..WORKERS).map(|_| worker())).await.concat();
    assert!(survivors.is_empty(), "{survivors:#?}");
}
