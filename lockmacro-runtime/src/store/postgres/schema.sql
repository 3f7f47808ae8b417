-- The locks. Each operation is one call of a function, so that it is one round trip and atomic, also
-- behind a transaction pooler.
--
-- All times are the server's. A function reads the clock after it has the row of its key, as it may
-- have waited for that: `clock_timestamp()`, never `now()`, which is when the statement began.
--
-- Times that functions take and return are in milliseconds, but for `at`, in microseconds.

-- Tables of version 2. Only what is not changed yet: this stops all calls, and waits for every
-- transaction that has read a table. The tables are locked in the order in which calls lock them.
DO $$ BEGIN
  IF to_regclass('lm1.lease') IS NOT NULL AND NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = to_regclass('lm1.lease') AND attname = 'fences'
  ) THEN
    LOCK TABLE lm1.lease, lm1.share, lm1.fence, lm1.value, lm1.waiter;
    ALTER TABLE lm1.lease ADD COLUMN fences text;
    ALTER TABLE lm1.share ADD COLUMN fences text;
    ALTER TABLE lm1.waiter ALTER COLUMN place DROP IDENTITY;
  END IF;
  IF to_regclass('lm1.value') IS NOT NULL AND NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = to_regclass('lm1.value') AND attname = 'name'
  ) THEN
    ALTER TABLE lm1.value ADD COLUMN name text COLLATE "C" NOT NULL DEFAULT '',
      DROP CONSTRAINT value_pkey, ADD PRIMARY KEY (key, name);
  END IF;
END $$;

-- A key that was ever locked. Its row is what every other change to the key waits for, and each
-- change to its holders changes the row: a transaction with a snapshot from before, as by a role with
-- another isolation than READ COMMITTED, fails then, and is repeated. A waiter that joins does not:
-- such a release may miss it, and then it asks within seconds. `token` is that of an exclusive holder,
-- and `fences` what it was given: a copy of its request that arrives late must not end these.
-- An index on `ends` would make each renewal write to it, too.
CREATE TABLE IF NOT EXISTS lm1.lease (
  key text COLLATE "C" PRIMARY KEY,
  token text,
  ends timestamptz NOT NULL DEFAULT '-infinity',
  used timestamptz NOT NULL DEFAULT clock_timestamp(),
  fences text
) WITH (fillfactor = 50);

-- The holders that share a key.
CREATE TABLE IF NOT EXISTS lm1.share (
  key text COLLATE "C",
  token text,
  ends timestamptz NOT NULL,
  came timestamptz NOT NULL DEFAULT clock_timestamp(),
  fences text,
  PRIMARY KEY (key, token)
) WITH (fillfactor = 50);

-- The last fences of a key, which the last grant was given, and the largest that was checked. A row
-- of its own, which a user's transaction locks by its check: a renewal does not wait for that.
CREATE TABLE IF NOT EXISTS lm1.fence (
  key text COLLATE "C" PRIMARY KEY,
  first bigint NOT NULL,
  fence bigint NOT NULL,
  checked bigint NOT NULL DEFAULT 0,
  used timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The largest fence of a lock in another store that was recorded. A table of its own, so that what is
-- recorded never counts as a grant.
CREATE TABLE IF NOT EXISTS lm1.recorded (
  key text COLLATE "C" PRIMARY KEY,
  fence bigint NOT NULL,
  used timestamptz NOT NULL
) WITH (fillfactor = 50);
-- Version 2 had no such function, and both in one table.
INSERT INTO lm1.recorded SELECT key, greatest(fence, checked), used FROM lm1.fence
  WHERE to_regprocedure('lm1.record_fence(text, bigint)') IS NULL
  ON CONFLICT DO NOTHING;
-- They were functions up to version 3, with an answer that a late writer could leave unread.
DO $$
DECLARE
  earlier regprocedure;
BEGIN
  FOR earlier IN SELECT oid FROM pg_proc WHERE pronamespace = 'lm1'::regnamespace
    AND proname IN ('check_fence', 'record_fence') AND prokind = 'f'
  LOOP
    EXECUTE format('DROP FUNCTION %s', earlier);
  END LOOP;
END $$;

-- The value that a holder of a key has kept for other calls of the function of this name.
CREATE TABLE IF NOT EXISTS lm1.value (
  key text COLLATE "C",
  value text NOT NULL,
  ends timestamptz NOT NULL,
  name text COLLATE "C" NOT NULL DEFAULT '',
  PRIMARY KEY (key, name)
);
CREATE INDEX IF NOT EXISTS value_ends ON lm1.value (ends);

-- The queue of a key, in the order of `place`, which `join_queue` counts. A crash empties it, and the
-- waiters ask again. An identity would have a sequence that is UNLOGGED, too, and such a sequence is
-- broken on a standby that was promoted before its first restartpoint.
CREATE UNLOGGED TABLE IF NOT EXISTS lm1.waiter (
  key text COLLATE "C",
  place bigint NOT NULL,
  token text NOT NULL,
  ttl bigint NOT NULL,
  holders int NOT NULL,
  fenced boolean NOT NULL,
  id text NOT NULL,
  channel text NOT NULL,
  callers int NOT NULL,
  ends timestamptz NOT NULL,
  PRIMARY KEY (key, place),
  UNIQUE (key, token)
) WITH (fillfactor = 50);

CREATE OR REPLACE FUNCTION lm1.version() RETURNS int
LANGUAGE sql IMMUTABLE AS 'SELECT 4';

CREATE OR REPLACE FUNCTION lm1.millis(ms bigint) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT ms * interval '1 ms' $$;

CREATE OR REPLACE FUNCTION lm1.left_at(t timestamptz, ends timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT ceil(extract(epoch FROM ends - t) * 1000)::bigint $$;

-- STABLE, as `extract` is for such a time: a function that promises more is not inlined.
CREATE OR REPLACE FUNCTION lm1.micros(t timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT (extract(epoch FROM t) * 1000000)::bigint $$;

-- The token of what `release` keeps for a time: nobody's, so that a renewal in flight finds nothing to
-- renew. It begins with zeros, as by chance no token does.
CREATE OR REPLACE FUNCTION lm1.kept_by(tok text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT left(tok, -32) || repeat('0', 16) || left(md5(tok), 16) $$;

-- A holder's token with another end in place of its secret: zeros where the key is only kept.
CREATE OR REPLACE FUNCTION lm1.without_secret(tok text, instead text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT left(tok, -32)
    || CASE WHEN left(right(tok, 32), 16) = repeat('0', 16) THEN repeat('0', 32) ELSE instead END
$$;

-- A holder's token as others see it, without its secret. `release` takes it from them.
CREATE OR REPLACE FUNCTION lm1.shown(tok text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT lm1.without_secret(tok, md5('shown/' || tok)) $$;

-- A grant or a renewal that a crash forgets is two holders, whatever the role's settings. A call that
-- waits longer for a row is repeated, and does not stay behind where nobody waits for it any more.
CREATE OR REPLACE FUNCTION lm1.durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM set_config('lock_timeout', '200', true);
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
END $$;

-- Locks the row of a key, and makes it if there is none.
CREATE OR REPLACE FUNCTION lm1.lock_row(k text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    PERFORM FROM lm1.lease WHERE key = k FOR UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO lm1.lease (key) VALUES (k) ON CONFLICT DO NOTHING;
  END LOOP;
END $$;

-- Whether a request is granted beside the present holders: while fewer than `holders` share the
-- key. That is 1 for an exclusive request, and 0 where there is no limit.
CREATE OR REPLACE FUNCTION lm1.admits(k text, holders int, t timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  -- In plpgsql, which keeps its plans: as a function in SQL it would be planned for each call.
  RETURN coalesce((SELECT ends <= t FROM lm1.lease WHERE key = k), false)
    AND (holders = 0 OR holders > (
      SELECT count(*) FROM lm1.share WHERE share.key = k AND share.ends > t
    ));
END $$;

-- Gives the key to a token for `ttl` from `t` on, with these fences. A lease is never shortened. For
-- one that shares the key, `note_sharing` has to follow.
CREATE OR REPLACE FUNCTION lm1.enter(
  k text, tok text, ttl bigint, holders int, given text, t timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF holders = 1 THEN
    UPDATE lm1.lease SET token = tok, used = t, fences = given, ends = greatest(
      t + lm1.millis(ttl), CASE WHEN token = tok THEN ends END
    ) WHERE key = k;
  ELSE
    INSERT INTO lm1.share AS s (key, token, ends, fences) VALUES (k, tok, t + lm1.millis(ttl), given)
      ON CONFLICT (key, token) DO UPDATE SET ends = greatest(s.ends, excluded.ends), fences = given;
  END IF;
END $$;

-- For calls of version 2 that are in flight during an upgrade.
CREATE OR REPLACE FUNCTION lm1.enter(k text, tok text, ttl bigint, holders int, t timestamptz)
RETURNS void LANGUAGE sql AS $$
  SELECT lm1.enter(k, tok, ttl, holders, NULL, t)
$$;

-- Changes the row of a key after its sharing holders have changed. An earlier exclusive lease stays
-- over, also when the clock is set back.
CREATE OR REPLACE FUNCTION lm1.note_sharing(k text, t timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM lm1.share WHERE key = k AND ends <= t;
  UPDATE lm1.lease SET token = NULL, ends = '-infinity', used = t WHERE key = k;
END $$;

-- The next fences of a key as `first-last`, or `last` if it is only one: larger than all before,
-- and up to the clock, which keeps the order when a row was lost. Empty where none is wanted. NULL
-- while a transaction has locked the last fence, as the holder that has it may still write; and when
-- all are used up.
--
-- A holder that wants none ends the last fence all the same.
CREATE OR REPLACE FUNCTION lm1.next_fences(k text, wanted boolean, t timestamptz) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  before bigint;
  lowest bigint;
  last bigint;
BEGIN
  SELECT fence INTO before FROM lm1.fence WHERE key = k FOR UPDATE SKIP LOCKED;
  IF before IS NULL AND EXISTS (SELECT FROM lm1.fence WHERE key = k) THEN
    RETURN NULL;
  ELSIF before IS NULL AND NOT wanted THEN
    RETURN '';
  END IF;
  last := greatest(before + 1, lm1.micros(t));
  IF last > 9007199254740992 THEN
    RETURN CASE WHEN NOT wanted THEN '' END;
  END IF;
  -- For the holders of one process, one after the other.
  lowest := CASE WHEN before IS NULL THEN last ELSE greatest(before + 1, last - 255) END;
  IF before IS NULL THEN
    INSERT INTO lm1.fence (key, first, fence, used) VALUES (k, lowest, last, t) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
  ELSE
    UPDATE lm1.fence x SET first = lowest, fence = last, used = t WHERE x.key = k;
  END IF;
  RETURN CASE WHEN NOT wanted THEN '' WHEN lowest = last THEN last::text ELSE lowest || '-' || last END;
END $$;

-- Fails outside of a transaction block, where each statement is committed by itself. PostgreSQL has
-- no function that tells. But a COMMIT in a procedure that has a handler for its failure does: inside
-- of a block it fails with the same text as in every function, and outside of one with another text.
-- `why` is that text, in the language of the session.
CREATE OR REPLACE FUNCTION lm1.need_transaction(why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  COMMIT;
EXCEPTION WHEN invalid_transaction_termination THEN
  IF why IS DISTINCT FROM SQLERRM THEN
    RAISE EXCEPTION 'the check of a fence is not in a transaction, so that it protects nothing: BEGIN the transaction that writes before it'
      USING ERRCODE = 'LM002';
  END IF;
END $$;

-- Fails for a check that another routine calls: there the text above says nothing, as a function never
-- commits, and so the check could be over before the writes. `callers` is the context of the check, with
-- a line for each of its callers below its own.
CREATE OR REPLACE FUNCTION lm1.need_direct_call(callers text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF position(chr(10) IN callers) > 0 THEN
    RAISE EXCEPTION 'the check of a fence is called by another function, where it cannot see the transaction: CALL it by itself, in the transaction that writes'
      USING ERRCODE = 'LM002';
  END IF;
END $$;

-- Fails in a savepoint, as is a block of plpgsql with a handler: its rollback unlocks the fence, or
-- takes the error of a late writer away, and the transaction goes on. `writer` has written the row.
CREATE OR REPLACE FUNCTION lm1.need_no_savepoint(writer xid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF writer <> pg_current_xact_id()::xid THEN
    RAISE EXCEPTION 'the check of a fence is in a savepoint, so that its rollback takes it back: check before the savepoint'
      USING ERRCODE = 'LM002';
  END IF;
END $$;

-- What `check_fence` does in the transaction that calls it.
CREATE OR REPLACE FUNCTION lm1.hold_fence(k text, f bigint, why text, callers text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  last bigint;
  writer xid;
BEGIN
  IF k IS NULL OR f IS NULL THEN
    RAISE EXCEPTION 'the key or the fence is NULL' USING ERRCODE = 'LM002';
  END IF;
  PERFORM lm1.need_direct_call(callers);
  PERFORM lm1.need_transaction(why);
  -- A row with a smaller fence is updated, too: if this one was granted after the snapshot of the
  -- transaction, that is a serialization failure, and no mistake.
  UPDATE lm1.fence x SET checked = f, used = clock_timestamp()
    WHERE x.key = k AND f >= greatest(x.first, x.checked)
    RETURNING x.fence, x.xmin INTO last, writer;
  IF f <= last THEN
    PERFORM lm1.need_no_savepoint(writer);
    RETURN;
  END IF;
  SELECT x.fence INTO last FROM lm1.fence x WHERE x.key = k;
  IF last IS NULL THEN
    RAISE EXCEPTION 'no fence was ever granted for %: is it the whole key, and the schema of the locks?', k
      USING ERRCODE = 'LM002';
  ELSIF f > last THEN
    RAISE EXCEPTION 'the fence % was never granted for %: use record_fence for a lock in another store', f, k
      USING ERRCODE = 'LM002';
  END IF;
  RAISE EXCEPTION 'the fence % of % is late, as a later holder was granted the lock: roll back', f, k
    USING ERRCODE = 'LM003';
END $$;

-- Aborts the transaction of a late holder by an error, so that nobody has to read an answer. A holder
-- is in time while it, or one of its process before it, has the last grant of the key, and no later
-- holder has asked. Then nobody else is granted the key until the end of the transaction; a client that
-- passes its lock on by itself has later holders, which wait here. It also fails for what was never
-- granted, as that is another lock, and where the check would be over or taken back before the writes:
-- see `need_direct_call`, `need_transaction`, for which it tries to commit, and `need_no_savepoint`.
CREATE OR REPLACE PROCEDURE lm1.check_fence(k text, f bigint) LANGUAGE plpgsql AS $$
DECLARE
  why text;
  callers text;
BEGIN
  GET DIAGNOSTICS callers = PG_CONTEXT;
  BEGIN
    COMMIT;
  EXCEPTION WHEN invalid_transaction_termination THEN
    why := SQLERRM;
  END;
  PERFORM lm1.hold_fence(k, f, why, callers);
END $$;

-- What `record_fence` does in the transaction that calls it.
CREATE OR REPLACE FUNCTION lm1.hold_recorded(k text, f bigint, why text, callers text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  writer xid;
BEGIN
  IF k IS NULL OR f IS NULL OR f NOT BETWEEN 0 AND 9007199254740992 THEN
    RAISE EXCEPTION 'not a key and a fence: % and %', k, f USING ERRCODE = 'LM002';
  END IF;
  PERFORM lm1.need_direct_call(callers);
  PERFORM lm1.need_transaction(why);
  -- A lock of this schema, for which `check_fence` is the stronger check.
  IF EXISTS (SELECT FROM lm1.fence x WHERE x.key = k AND greatest(x.first, x.checked) > f) THEN
    RAISE EXCEPTION 'the fence % of % is late, as a later holder was granted the lock: roll back', f, k
      USING ERRCODE = 'LM003';
  END IF;
  INSERT INTO lm1.recorded AS r VALUES (k, f, clock_timestamp()) ON CONFLICT (key) DO UPDATE
    SET fence = excluded.fence, used = excluded.used WHERE r.fence <= f
    RETURNING r.xmin INTO writer;
  IF writer IS NULL THEN
    RAISE EXCEPTION 'the fence % of % is late, as a larger one was recorded: roll back', f, k
      USING ERRCODE = 'LM003';
  END IF;
  PERFORM lm1.need_no_savepoint(writer);
END $$;

-- Records the fence of a lock in another store, of which nothing else is known here, and aborts the
-- transaction of a smaller one, as `check_fence` does.
CREATE OR REPLACE PROCEDURE lm1.record_fence(k text, f bigint) LANGUAGE plpgsql AS $$
DECLARE
  why text;
  callers text;
BEGIN
  GET DIAGNOSTICS callers = PG_CONTEXT;
  BEGIN
    COMMIT;
  EXCEPTION WHEN invalid_transaction_termination THEN
    why := SQLERRM;
  END;
  PERFORM lm1.hold_recorded(k, f, why, callers);
END $$;

-- Hands the key off to the first waiters, as many as may share it, for at most 5 s until they
-- confirm. Adds what is to be pushed to them. After 200 it stops, and tells the next waiter to ask,
-- whose call goes on. Returns `own` when the next one is `tok`, and may
-- enter; `none` when nobody waits; else `other`.
CREATE OR REPLACE FUNCTION lm1.pass(
  k text, tok text, t timestamptz, INOUT channels text[], INOUT pushes text[], OUT next text
) LANGUAGE plpgsql AS $$
DECLARE
  w lm1.waiter;
  fences text;
  window_ms bigint;
  shared boolean := false;
BEGIN
  LOOP
    SELECT * INTO w FROM lm1.waiter WHERE key = k ORDER BY place LIMIT 1;
    IF w.ends <= t THEN
      -- Only then, as this looks at each waiter of a queue that may be long.
      DELETE FROM lm1.waiter WHERE key = k AND ends <= t;
      CONTINUE;
    END IF;
    next := CASE WHEN NOT FOUND THEN 'none' WHEN w.token = tok THEN 'own' ELSE 'other' END;
    IF next <> 'none' AND NOT lm1.admits(k, w.holders, t) THEN
      next := 'other';
    END IF;
    EXIT WHEN next <> 'other' OR NOT lm1.admits(k, w.holders, t);
    IF cardinality(pushes) >= 200 THEN
      channels := channels || w.channel;
      pushes := pushes || (left(w.id, 20) || '|0|0|0');
      EXIT;
    END IF;
    fences := lm1.next_fences(k, w.fenced, t);
    EXIT WHEN fences IS NULL;
    window_ms := least(w.ttl, 5000);
    PERFORM lm1.enter(k, w.token, window_ms, w.holders, fences, t);
    shared := shared OR w.holders <> 1;
    DELETE FROM lm1.waiter WHERE key = k AND place = w.place;
    channels := channels || w.channel;
    pushes := pushes
      || concat_ws('|', w.id, coalesce(nullif(fences, ''), '0'), lm1.micros(t), window_ms);
  END LOOP;
  IF shared THEN
    PERFORM lm1.note_sharing(k, t);
  END IF;
END $$;

-- Puts a waiter behind the others of its key, or refreshes its record. The key's row is locked, and so
-- its places are counted one after the other.
CREATE OR REPLACE FUNCTION lm1.join_queue(w lm1.waiter, t timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lm1.waiter x SET ttl = w.ttl, fenced = w.fenced, id = w.id, channel = w.channel,
    callers = w.callers, ends = w.ends WHERE x.key = w.key AND x.token = w.token;
  IF NOT FOUND THEN
    -- From the clock, as a snapshot from before that lock may not have the last place.
    w.place := greatest(lm1.micros(t), 1 + (SELECT max(place) FROM lm1.waiter WHERE key = w.key));
    INSERT INTO lm1.waiter SELECT w.*;
  END IF;
END $$;

-- The number of waiters before a waiter; -1 when there are too many, and it has to leave.
CREATE OR REPLACE FUNCTION lm1.rank_of(k text, tok text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  rank int;
BEGIN
  SELECT count(*) INTO rank FROM lm1.waiter
    WHERE key = k AND place < (SELECT place FROM lm1.waiter WHERE key = k AND token = tok);
  IF rank >= 10000 THEN
    -- The dead ones first. `pass` removes them only at the head, which may be alive.
    DELETE FROM lm1.waiter WHERE key = k AND ends <= clock_timestamp();
    SELECT count(*) INTO rank FROM lm1.waiter
      WHERE key = k AND place < (SELECT place FROM lm1.waiter WHERE key = k AND token = tok);
  END IF;
  IF rank >= 10000 THEN
    DELETE FROM lm1.waiter WHERE key = k AND token = tok;
    RETURN -1;
  END IF;
  RETURN rank;
END $$;

-- For calls of version 2 that are in flight during an upgrade.
CREATE OR REPLACE FUNCTION lm1.join_queue(w lm1.waiter) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  PERFORM lm1.join_queue(w, clock_timestamp());
  RETURN lm1.rank_of(w.key, w.token);
END $$;

-- Keeps the places of waiters, each a key and a token, for `waits`, if `behind` others that live are
-- before them: true for each. A waiter further in front has to ask, and so has one that is not in the queue,
-- or whose row somebody changes just now. No row of a key is locked, and nobody is waited for.
CREATE OR REPLACE FUNCTION lm1.stay(keys text[], tokens text[], behind int, waits bigint)
RETURNS boolean[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  nths bigint[];
  stays boolean[] := array_fill(false, ARRAY[cardinality(keys)]);
  i bigint;
BEGIN
  PERFORM lm1.check_arguments(VARIADIC keys || tokens || ARRAY[behind::text, waits::text]);
  PERFORM lm1.check_lengths(cardinality(keys), cardinality(tokens));
  WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(keys, tokens) WITH ORDINALITY AS x(k, tok, nth)
  ), front AS MATERIALIZED (
    SELECT x.k, (
      SELECT w.place FROM lm1.waiter w WHERE w.key = x.k AND w.ends > clock_timestamp()
        ORDER BY w.place OFFSET behind LIMIT 1
    ) AS place FROM (SELECT DISTINCT k FROM asked) x
  ), back AS MATERIALIZED (
    SELECT w.key, w.token, a.nth FROM asked a, front f, lm1.waiter w
      WHERE f.k = a.k AND w.key = a.k AND w.token = a.tok AND w.place >= f.place
      FOR UPDATE OF w SKIP LOCKED
  ), kept AS (
    UPDATE lm1.waiter w SET ends = clock_timestamp() + lm1.millis(waits)
      FROM back b WHERE w.key = b.key AND w.token = b.token RETURNING b.nth
  )
  SELECT array_agg(nth) INTO nths FROM kept;
  FOR i IN SELECT unnest(nths) LOOP
    stays[i] := true;
  END LOOP;
  RETURN stays;
END $$;

-- Fails for arguments with which a function would go on, and do something else than was meant: one
-- that is NULL, and lists of different lengths.
CREATE OR REPLACE FUNCTION lm1.check_arguments(VARIADIC given text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF array_position(given, NULL) IS NOT NULL THEN
    RAISE EXCEPTION 'a key, a token, a time or a number of holders is NULL' USING ERRCODE = '22004';
  END IF;
END $$;

CREATE OR REPLACE FUNCTION lm1.check_lengths(VARIADIC lengths int[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF lengths[1] <> ANY (lengths) THEN
    RAISE EXCEPTION 'the lists have different lengths: each key needs its own value'
      USING ERRCODE = '22023';
  END IF;
END $$;

-- Asks for keys: all or none. Idempotent for a token: a lock that it holds is granted again, with at
-- least the whole ttl and the fences that it has; a place in the queue is kept.
--
-- A request that is served after `not_after`, by the server's clock in microseconds, is refused with
-- -1 as `nth`, and does nothing: nobody waits for its answer any more, and the lock may have been
-- released since. NULL is without such an end.
--
-- A waiter has an `id` and a channel for its pushes, and one key. When the lock is contended, `nth`
-- is the number of the key that is, from 0, with its holder and what is left of its lease; `rank`
-- is that of a waiter. Else `fences` has one element for each key.
CREATE OR REPLACE FUNCTION lm1.ask(
  keys text[], tok text, ttl bigint, holders int[], fenced boolean,
  id text, channel text, callers int, waits bigint, not_after bigint,
  OUT nth int, OUT holder text, OUT rest bigint, OUT rank int, OUT at bigint,
  OUT fences text[], OUT channels text[], OUT pushes text[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  k text;
  t timestamptz;
  l lm1.lease;
  w lm1.waiter;
  mine boolean;
  held boolean;
  joined boolean := false;
  given text;
  next text;
BEGIN
  PERFORM lm1.durable();
  PERFORM lm1.check_arguments(tok, ttl::text, fenced::text, cardinality(keys)::text,
    cardinality(holders)::text);
  PERFORM lm1.check_arguments(VARIADIC keys || holders::text[]);
  PERFORM lm1.check_lengths(cardinality(keys), cardinality(holders));
  IF ttl < 1 OR 0 > ANY (holders) THEN
    RAISE EXCEPTION 'a ttl or a number of holders is too small' USING ERRCODE = '22023';
  END IF;
  FOR k IN SELECT x FROM unnest(keys) x ORDER BY x COLLATE "C" LOOP
    PERFORM lm1.lock_row(k);
  END LOOP;
  t := clock_timestamp();
  at := lm1.micros(t);
  channels := '{}';
  pushes := '{}';
  IF at > not_after THEN
    nth := -1;
    rest := 0;
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN;
  END IF;
  FOR i IN 1..cardinality(keys) LOOP
    k := keys[i];
    SELECT x.fences INTO given FROM (
      SELECT y.fences FROM lm1.lease y WHERE y.key = k AND y.token = tok AND y.ends > t
      UNION ALL SELECT y.fences FROM lm1.share y WHERE y.key = k AND y.token = tok AND y.ends > t
    ) x;
    mine := FOUND;
    held := mine;
    IF NOT held THEN
      w := ROW(k, 0, tok, ttl, holders[i], fenced, id, channel, callers, t + lm1.millis(waits));
      IF id IS NOT NULL AND EXISTS (SELECT FROM lm1.waiter x WHERE x.key = k) THEN
        PERFORM lm1.join_queue(w, t);
        joined := true;
      END IF;
      SELECT p.next, p.channels, p.pushes INTO next, channels, pushes
        FROM lm1.pass(k, tok, t, channels, pushes) p;
      held := next = 'own' OR next = 'none' AND lm1.admits(k, holders[i], t);
    END IF;
    IF held AND coalesce(given, '') = '' THEN
      given := lm1.next_fences(k, fenced, t);
      IF given IS NULL AND EXISTS (
        SELECT FROM lm1.fence x WHERE x.key = k AND x.fence >= 9007199254740992
      ) THEN
        RAISE EXCEPTION 'the fence of % is at 2^53', k USING ERRCODE = 'LM001';
      ELSIF given IS NULL AND mine THEN
        RAISE EXCEPTION 'a transaction has locked the last fence' USING ERRCODE = '55P03';
      END IF;
    END IF;
    fences[i] := given;
    IF NOT held OR given IS NULL THEN
      nth := i - 1;
      fences := NULL;
      IF id IS NOT NULL THEN
        IF NOT joined THEN
          PERFORM lm1.join_queue(w, t);
        END IF;
        rank := lm1.rank_of(k, tok);
      END IF;
      EXIT;
    END IF;
  END LOOP;
  IF nth IS NOT NULL THEN
    SELECT * INTO l FROM lm1.lease x WHERE x.key = k;
    IF l.ends > t THEN
      holder := l.token;
      rest := lm1.left_at(t, l.ends);
    ELSE
      SELECT x.token INTO holder FROM lm1.share x
        WHERE x.key = k AND x.ends > t ORDER BY x.ends DESC LIMIT 1;
      SELECT lm1.left_at(t, CASE WHEN holders[nth + 1] > 1 THEN min(x.ends) ELSE max(x.ends) END)
        INTO rest FROM lm1.share x WHERE x.key = k AND x.ends > t;
      -- Free, but for a transaction that has locked the last fence.
      rest := coalesce(rest, 100);
    END IF;
    -- The label, and not the secret.
    holder := lm1.without_secret(holder, 'shared');
    IF cardinality(pushes) = 0 THEN
      -- Nobody was granted anything that a crash must not forget.
      PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN;
  END IF;
  FOR i IN 1..cardinality(keys) LOOP
    PERFORM lm1.enter(keys[i], tok, ttl, holders[i], fences[i], t);
    DELETE FROM lm1.waiter x WHERE x.key = keys[i] AND x.token = tok;
    IF NOT fenced THEN
      fences[i] := '';
    END IF;
    IF holders[i] <> 1 THEN
      PERFORM lm1.note_sharing(keys[i], t);
      -- Those behind it may share the key, too.
      SELECT p.channels, p.pushes INTO channels, pushes
        FROM lm1.pass(keys[i], tok, t, channels, pushes) p;
    END IF;
  END LOOP;
END $$;

-- The same without such an end, as version 2 had it.
CREATE OR REPLACE FUNCTION lm1.ask(
  keys text[], tok text, ttl bigint, holders int[], fenced boolean,
  id text, channel text, callers int, waits bigint,
  OUT nth int, OUT holder text, OUT rest bigint, OUT rank int, OUT at bigint,
  OUT fences text[], OUT channels text[], OUT pushes text[]
) LANGUAGE sql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT * FROM lm1.ask(
    keys, tok, ttl, holders, fenced, id, channel, callers, waits, NULL
  )
$$;

-- Releases keys, or keeps them for `keep`; hands them off to their first waiters; and removes the
-- token from their queues. `held`: whether the token held all of them. Idempotent. By force: `tok` is
-- what `look` shows, `shared` instead of a secret for all holders that share.
CREATE OR REPLACE FUNCTION lm1.release(
  keys text[], tok text, keep bigint, OUT held boolean, OUT channels text[], OUT pushes text[]
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  k text;
  t timestamptz;
  l lm1.lease;
  mine boolean;
  released int := 0;
  kept boolean := false;
BEGIN
  PERFORM lm1.durable();
  PERFORM lm1.check_arguments(tok, keep::text, cardinality(keys)::text);
  PERFORM lm1.check_arguments(VARIADIC keys);
  channels := '{}';
  pushes := '{}';
  FOR l IN SELECT * FROM lm1.lease x WHERE x.key = ANY (keys) ORDER BY x.key FOR UPDATE LOOP
    k := l.key;
    t := clock_timestamp();
    DELETE FROM lm1.waiter x WHERE x.key = k AND x.token = tok;
    IF l.token = tok OR lm1.shown(l.token) = tok THEN
      mine := l.ends > t;
      -- A renewal in flight finds nothing to renew.
      UPDATE lm1.lease x SET
        token = CASE WHEN mine AND keep > 0 THEN lm1.kept_by(tok) END,
        ends = CASE WHEN mine AND keep > 0 THEN t + lm1.millis(keep) ELSE '-infinity' END
        WHERE x.key = k;
    ELSIF right(tok, 7) = '/shared' THEN
      WITH gone AS (DELETE FROM lm1.share x WHERE x.key = k RETURNING x.ends)
        SELECT bool_or(gone.ends > t) INTO mine FROM gone;
      UPDATE lm1.lease x SET used = t WHERE x.key = k AND mine IS NOT NULL;
    ELSE
      DELETE FROM lm1.share x WHERE x.key = k AND x.token = tok RETURNING x.ends > t INTO mine;
      UPDATE lm1.lease x SET used = t WHERE x.key = k AND mine IS NOT NULL;
      IF mine AND keep > 0 THEN
        INSERT INTO lm1.share (key, token, ends)
          VALUES (k, lm1.kept_by(tok), t + lm1.millis(keep));
      END IF;
    END IF;
    released := released + coalesce(mine, false)::int;
    kept := kept OR mine AND keep > 0;
    SELECT p.channels, p.pushes INTO channels, pushes
      FROM lm1.pass(k, tok, t, channels, pushes) p;
    IF mine AND keep > 0 THEN
      -- The first waiter asks again, and learns how long the key is kept.
      SELECT channels || x.channel, pushes || (left(x.id, 20) || '|0|0|0') INTO channels, pushes
        FROM (SELECT 1) one LEFT JOIN LATERAL (
          SELECT * FROM lm1.waiter q WHERE q.key = k ORDER BY q.place LIMIT 1
        ) x ON true;
      channels := array_remove(channels, NULL);
      pushes := array_remove(pushes, NULL);
    END IF;
  END LOOP;
  held := released = cardinality(keys);
  IF cardinality(pushes) = 0 AND NOT kept THEN
    -- Without a grant in it: a release that a crash forgets costs the rest of a lease.
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
END $$;

-- Restarts the ttl of locks that their tokens hold, each by itself. Of several keys, the answer is
-- NULL for those whose rows are locked, so that these do not delay the others: ask for each key alone.
--
-- The rows are locked by a statement of its own: the next one then sees their last versions, and the
-- clock that it reads is not from before a wait.
CREATE OR REPLACE FUNCTION lm1.renew(keys text[], tokens text[], ttls bigint[]) RETURNS boolean[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  nths bigint[];
  renewed bigint[];
  sharing text[];
  i bigint;
  held boolean[] := array_fill(false, ARRAY[cardinality(keys)]);
BEGIN
  PERFORM lm1.durable();
  PERFORM lm1.check_arguments(VARIADIC keys || tokens || ttls::text[]);
  PERFORM lm1.check_lengths(cardinality(keys), cardinality(tokens), cardinality(ttls));
  IF keys[1] = ALL (keys) THEN
    PERFORM FROM lm1.lease WHERE key = keys[1] FOR UPDATE;
    nths := ARRAY(SELECT generate_series(1, cardinality(keys)));
  ELSE
    SELECT array_agg(x.nth ORDER BY x.nth) INTO nths FROM (
      SELECT a.nth FROM unnest(keys) WITH ORDINALITY AS a(k, nth), lm1.lease l
        WHERE l.key = a.k FOR UPDATE OF l SKIP LOCKED
    ) x;
    IF cardinality(nths) IS DISTINCT FROM cardinality(keys) THEN
      -- Of the others, some have no row.
      FOR i IN SELECT generate_series(1, cardinality(keys)) EXCEPT SELECT unnest(nths) LOOP
        held[i] := CASE WHEN NOT EXISTS (SELECT FROM lm1.lease WHERE key = keys[i]) THEN false END;
      END LOOP;
      SELECT array_agg(x.k), array_agg(x.tok), array_agg(x.ttl), array_agg(x.nth)
        INTO keys, tokens, ttls, nths FROM unnest(keys, tokens, ttls)
          WITH ORDINALITY AS x(k, tok, ttl, nth) JOIN unnest(nths) n ON n = x.nth;
    END IF;
  END IF;
  -- Two renewals of one token are one: a statement would carry out only one of them.
  WITH asked AS (
    SELECT x.k, x.tok, max(x.ttl) AS ttl, array_agg(x.nth) AS nths
      FROM unnest(keys, tokens, ttls, nths) AS x(k, tok, ttl, nth) GROUP BY x.k, x.tok
  ), exclusive AS (
    UPDATE lm1.lease x SET ends = greatest(x.ends, clock_timestamp() + lm1.millis(a.ttl))
      FROM asked a WHERE x.key = a.k AND x.token = a.tok AND x.ends > clock_timestamp()
      RETURNING a.nths
  )
  SELECT array_agg(n) INTO renewed FROM exclusive e, unnest(e.nths) n;
  IF cardinality(renewed) IS DISTINCT FROM cardinality(nths) THEN
    WITH asked AS (
      SELECT x.k, x.tok, max(x.ttl) AS ttl, array_agg(x.nth) AS nths
        FROM unnest(keys, tokens, ttls, nths) AS x(k, tok, ttl, nth) GROUP BY x.k, x.tok
    ), shared AS (
      UPDATE lm1.share x SET ends = greatest(x.ends, clock_timestamp() + lm1.millis(a.ttl))
        FROM asked a WHERE x.key = a.k AND x.token = a.tok AND x.ends > clock_timestamp()
        RETURNING a.k, a.nths
    )
    SELECT renewed || array_agg(n), array_agg(s.k) INTO renewed, sharing
      FROM shared s, unnest(s.nths) n;
    UPDATE lm1.lease SET used = clock_timestamp() WHERE key = ANY (sharing);
  END IF;
  FOR i IN SELECT unnest(renewed) LOOP
    held[i] := true;
  END LOOP;
  RETURN held;
END $$;

-- The lock on a key, or no row. Reads as of the beginning of the statement, as it waits for no row.
CREATE OR REPLACE FUNCTION lm1.look(k text)
RETURNS TABLE (key text, token text, rest bigint, sharing int, waiting int)
LANGUAGE sql STABLE ROWS 1 SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT k, l.token, lm1.left_at(statement_timestamp(), l.ends), l.sharing::int, (
    SELECT count(*) FROM lm1.waiter w WHERE w.key = k AND w.ends > statement_timestamp()
  )::int
  FROM (
    SELECT lm1.shown(x.token) AS token, x.ends, 0 AS sharing FROM lm1.lease x
      WHERE x.key = k AND x.ends > statement_timestamp()
    UNION ALL (
      SELECT left(s.token, -32) || 'shared', max(s.ends) OVER (), count(*) OVER () FROM lm1.share s
        WHERE s.key = k AND s.ends > statement_timestamp() ORDER BY s.came DESC LIMIT 1
    )
  ) l
$$;

-- The holders of a key, in the order in which they came.
CREATE OR REPLACE FUNCTION lm1.look_at_holders(k text, most bigint)
RETURNS TABLE (token text, rest bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT lm1.shown(l.token), lm1.left_at(statement_timestamp(), l.ends) FROM (
    SELECT x.token, x.ends, x.used AS came FROM lm1.lease x WHERE x.key = k
    UNION ALL SELECT s.token, s.ends, s.came FROM lm1.share s WHERE s.key = k
  ) l
  WHERE l.ends > statement_timestamp() ORDER BY l.came LIMIT most
$$;

-- The locks whose keys match a regular expression, by key.
CREATE OR REPLACE FUNCTION lm1.look_for(pattern text, most bigint)
RETURNS TABLE (key text, token text, rest bigint, sharing int, waiting int)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT l.* FROM lm1.lease x, lm1.look(x.key) l
    WHERE x.key ~ pattern
      AND (x.ends > statement_timestamp() OR EXISTS (SELECT FROM lm1.share s WHERE s.key = x.key))
    ORDER BY x.key LIMIT most
$$;

-- The first waiters of a key.
CREATE OR REPLACE FUNCTION lm1.look_behind(k text, most bigint)
RETURNS TABLE (token text, rest bigint, callers int)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT left(w.token, -32) || 'shared', lm1.left_at(statement_timestamp(), w.ends), w.callers
    FROM lm1.waiter w WHERE w.key = k AND w.ends > statement_timestamp()
    ORDER BY w.place LIMIT most
$$;

-- The open or prepared transaction that has locked the last fence of a key, as a check does, so that
-- nobody else is granted the key. One that has also locked a row of `lease` is a grant, and over soon.
-- But one that ends between the two looks at the locks is told too, so the caller looks again.
CREATE OR REPLACE FUNCTION lm1.look_at_check(k text) RETURNS SETOF text
LANGUAGE sql STABLE ROWS 1 SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT coalesce(
    'transaction ' || x.xmax || ' of process ' || l.pid || ' ('
      || concat_ws(', ', a.usename, nullif(a.application_name, ''), 'since ' || a.xact_start) || ')',
    format('the prepared transaction %L', p.gid)
  ) FROM lm1.fence x
    JOIN pg_locks l ON l.transactionid = x.xmax AND l.mode = 'ExclusiveLock' AND l.granted
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    LEFT JOIN pg_prepared_xacts p ON p.transaction = x.xmax
    WHERE x.key = k AND NOT EXISTS (
      SELECT FROM pg_locks m WHERE m.virtualtransaction = l.virtualtransaction
        AND m.relation = 'lm1.lease'::regclass AND m.mode <> 'AccessShareLock'
    )
$$;

-- The value that was kept under a name, and what is left of its time; NULL if there is none.
CREATE OR REPLACE FUNCTION lm1.kept(k text, of text, OUT v text, OUT rest bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT max(value), max(lm1.left_at(clock_timestamp(), ends)) FROM lm1.value
    WHERE key = k AND name = of AND ends > clock_timestamp()
$$;

-- Keeps a value for `keep`, or removes it if `v` is empty, if the token holds the key, which stays so
-- until the end of the call.
CREATE OR REPLACE FUNCTION lm1.keep(k text, tok text, v text, keep bigint, of text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
BEGIN
  PERFORM lm1.durable();
  PERFORM lm1.check_arguments(k, tok, v, keep::text, of);
  PERFORM lm1.lock_row(k);
  IF NOT EXISTS (SELECT FROM lm1.lease l WHERE l.key = k AND token = tok AND ends > clock_timestamp())
  THEN
    RETURN false;
  END IF;
  DELETE FROM lm1.value WHERE key = k AND name = of;
  IF v <> '' THEN
    INSERT INTO lm1.value VALUES (k, v, clock_timestamp() + lm1.millis(keep), of);
  END IF;
  RETURN true;
END $$;

-- For programs of version 2, whose functions had one value for all.
CREATE OR REPLACE FUNCTION lm1.kept(k text) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$ SELECT v FROM lm1.kept(k, '') $$;
CREATE OR REPLACE FUNCTION lm1.keep(k text, tok text, v text, keep bigint) RETURNS boolean
LANGUAGE sql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT lm1.keep(k, tok, v, keep, '')
$$;

-- Removes values whose time is over. Returns after which time to do so again, NULL if none are left.
CREATE OR REPLACE FUNCTION lm1.forget_values() RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  DELETE FROM lm1.value WHERE (key, name) IN (
    SELECT key, name FROM lm1.value WHERE ends <= clock_timestamp()
      ORDER BY ends LIMIT 1000 FOR UPDATE SKIP LOCKED
  );
  SELECT greatest(lm1.left_at(clock_timestamp(), min(ends)), 0) FROM lm1.value;
$$;

-- Forgets keys that nobody has used for a minute, and their fences after `retention`, among the next
-- ones after a key. Returns where to go on, NULL at the end.
CREATE OR REPLACE FUNCTION lm1.tidy(retention bigint, after text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  unused timestamptz := clock_timestamp() - interval '1 min';
  last_lease text COLLATE "C";
  last_fence text COLLATE "C";
  last_recorded text COLLATE "C";
BEGIN
  PERFORM lm1.durable();
  SELECT key INTO last_lease FROM lm1.lease WHERE key > after ORDER BY key OFFSET 999 LIMIT 1;
  DELETE FROM lm1.lease WHERE key IN (
    SELECT key FROM lm1.lease l
      WHERE key > after AND (last_lease IS NULL OR key <= last_lease)
        AND ends < clock_timestamp() AND used < unused
        AND NOT EXISTS (SELECT FROM lm1.share s WHERE s.key = l.key AND s.ends > clock_timestamp())
        AND NOT EXISTS (SELECT FROM lm1.waiter w WHERE w.key = l.key)
      FOR UPDATE SKIP LOCKED
  );
  SELECT key INTO last_fence FROM lm1.fence WHERE key > after ORDER BY key OFFSET 999 LIMIT 1;
  DELETE FROM lm1.fence WHERE key IN (
    SELECT key FROM lm1.fence
      WHERE key > after AND (last_fence IS NULL OR key <= last_fence)
        AND used < clock_timestamp() - lm1.millis(retention)
        AND NOT EXISTS (SELECT FROM lm1.lease l WHERE l.key = fence.key)
      FOR UPDATE SKIP LOCKED
  );
  SELECT key INTO last_recorded FROM lm1.recorded WHERE key > after ORDER BY key OFFSET 999 LIMIT 1;
  DELETE FROM lm1.recorded WHERE key IN (
    SELECT key FROM lm1.recorded
      WHERE key > after AND (last_recorded IS NULL OR key <= last_recorded)
        AND used < clock_timestamp() - lm1.millis(retention)
      FOR UPDATE SKIP LOCKED
  );
  PERFORM lm1.forget_values();
  IF least(last_lease, last_fence, last_recorded) IS NULL THEN
    DELETE FROM lm1.share WHERE ends < unused;
    DELETE FROM lm1.call WHERE state = 'gone' AND at < clock_timestamp();
    DELETE FROM lm1.idle WHERE ends < unused;
  END IF;
  RETURN least(last_lease, last_fence, last_recorded);
END $$;
