-- The locks of lockmacro in PostgreSQL. Each operation is one call of a function, so that it is one
-- round trip and atomic, also behind a transaction pooler.
--
-- All times are the server's. A function reads the clock after it has the row of its key, as it may
-- have waited for that: `clock_timestamp()`, never `now()`, which is when the statement began.
--
-- Times that functions take and return are in milliseconds, but for `at`, in microseconds.

CREATE SCHEMA IF NOT EXISTS lm1;

-- A key that was ever locked. Its row is what every other change to the key waits for, and each
-- change to its holders changes the row: a transaction with a snapshot from before, as by a role with
-- another isolation than READ COMMITTED, fails then, and is repeated. A waiter that joins does not:
-- such a release may miss it, and then it asks within seconds. `token` is that of an exclusive holder.
-- An index on `ends` would make each renewal write to it, too.
CREATE TABLE IF NOT EXISTS lm1.lease (
  key text COLLATE "C" PRIMARY KEY,
  token text,
  ends timestamptz NOT NULL DEFAULT '-infinity',
  used timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- The holders that share a key.
CREATE TABLE IF NOT EXISTS lm1.share (
  key text COLLATE "C",
  token text,
  ends timestamptz NOT NULL,
  came timestamptz NOT NULL DEFAULT clock_timestamp(),
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

-- The value that a holder of a key has kept for others.
CREATE TABLE IF NOT EXISTS lm1.value (
  key text COLLATE "C" PRIMARY KEY,
  value text NOT NULL,
  ends timestamptz NOT NULL
);

-- The queue of a key, in the order of `place`. A crash empties it, and the waiters ask again.
CREATE UNLOGGED TABLE IF NOT EXISTS lm1.waiter (
  key text COLLATE "C",
  place bigint GENERATED ALWAYS AS IDENTITY,
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
LANGUAGE sql IMMUTABLE AS 'SELECT 2';

CREATE OR REPLACE FUNCTION lm1.millis(ms bigint) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT ms * interval '1 ms' $$;

CREATE OR REPLACE FUNCTION lm1.left_at(t timestamptz, ends timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT ceil(extract(epoch FROM ends - t) * 1000)::bigint $$;

CREATE OR REPLACE FUNCTION lm1.micros(t timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT (extract(epoch FROM t) * 1000000)::bigint $$;

-- A holder's token as others see it, without its secret. `release` takes it from them.
CREATE OR REPLACE FUNCTION lm1.shown(tok text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT left(tok, -32) || md5('shown/' || tok) $$;

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
LANGUAGE sql AS $$
  SELECT coalesce((SELECT ends <= t FROM lm1.lease WHERE key = k), false)
    AND (holders = 0 OR holders > (
      SELECT count(*) FROM lm1.share WHERE share.key = k AND share.ends > t
    ))
$$;

-- Gives the key to a token for `ttl` from `t` on. A lease is never shortened. For one that shares the
-- key, `note_sharing` has to follow.
CREATE OR REPLACE FUNCTION lm1.enter(k text, tok text, ttl bigint, holders int, t timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF holders = 1 THEN
    UPDATE lm1.lease SET token = tok, used = t, ends = greatest(
      t + lm1.millis(ttl), CASE WHEN token = tok THEN ends END
    ) WHERE key = k;
  ELSE
    INSERT INTO lm1.share AS s VALUES (k, tok, t + lm1.millis(ttl))
      ON CONFLICT (key, token) DO UPDATE SET ends = greatest(s.ends, excluded.ends);
  END IF;
END $$;

-- Changes the row of a key after its sharing holders have changed. An earlier exclusive lease stays
-- over, also when the clock is set back.
CREATE OR REPLACE FUNCTION lm1.note_sharing(k text, t timestamptz) RETURNS void LANGUAGE sql AS $$
  DELETE FROM lm1.share WHERE key = k AND ends <= t;
  UPDATE lm1.lease SET token = NULL, ends = '-infinity', used = t WHERE key = k;
$$;

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

-- Whether a holder with this fence may write, until the end of the transaction that asks: that
-- holder, or one of its process before it, has the last grant of the key, and no later holder has
-- asked. Until that end no other process is granted the key, and later holders of the same process
-- wait here. The key may be locked in another store: then the largest fence that was checked decides.
CREATE OR REPLACE FUNCTION lm1.check_fence(k text, f bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
BEGIN
  IF f NOT BETWEEN 0 AND 9007199254740992 THEN
    RETURN false;
  END IF;
  INSERT INTO lm1.fence (key, first, fence, used) VALUES (k, f, f, clock_timestamp())
    ON CONFLICT DO NOTHING;
  -- A writer that is late locks nothing.
  UPDATE lm1.fence x SET
    first = CASE WHEN f > x.fence THEN f ELSE x.first END,
    fence = greatest(x.fence, f), checked = f, used = clock_timestamp()
    WHERE x.key = k AND f >= greatest(x.first, x.checked);
  RETURN FOUND;
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
  DELETE FROM lm1.waiter WHERE key = k AND ends <= t;
  LOOP
    SELECT * INTO w FROM lm1.waiter WHERE key = k ORDER BY place LIMIT 1;
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
    PERFORM lm1.enter(k, w.token, window_ms, w.holders, t);
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

-- Puts a waiter into the queue, or refreshes its place. Returns its rank, -1 when the queue is full.
CREATE OR REPLACE FUNCTION lm1.join_queue(w lm1.waiter) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  mine bigint;
  rank int;
BEGIN
  INSERT INTO lm1.waiter (key, token, ttl, holders, fenced, id, channel, callers, ends)
    VALUES (w.key, w.token, w.ttl, w.holders, w.fenced, w.id, w.channel, w.callers, w.ends)
    ON CONFLICT (key, token) DO UPDATE SET ttl = w.ttl, fenced = w.fenced, id = w.id,
      channel = w.channel, callers = w.callers, ends = w.ends
    RETURNING place INTO mine;
  SELECT count(*) INTO rank FROM lm1.waiter WHERE key = w.key AND place < mine;
  IF rank >= 10000 THEN
    DELETE FROM lm1.waiter WHERE key = w.key AND place = mine;
    RETURN -1;
  END IF;
  RETURN rank;
END $$;

-- Asks for keys: all or none. Idempotent for a token: a lock that it holds is granted again, with at
-- least the whole ttl and new fences; a place in the queue is kept.
--
-- A waiter has an `id` and a channel for its pushes, and one key. When the lock is contended, `nth`
-- is the number of the key that is, from 0, with its holder and what is left of its lease; `rank`
-- is that of a waiter. Else `fences` has one element for each key.
CREATE OR REPLACE FUNCTION lm1.ask(
  keys text[], tok text, ttl bigint, holders int[], fenced boolean,
  id text, channel text, callers int, waits bigint,
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
  next text;
BEGIN
  PERFORM lm1.durable();
  FOR k IN SELECT x FROM unnest(keys) x ORDER BY x COLLATE "C" LOOP
    PERFORM lm1.lock_row(k);
  END LOOP;
  t := clock_timestamp();
  at := lm1.micros(t);
  channels := '{}';
  pushes := '{}';
  FOR i IN 1..cardinality(keys) LOOP
    k := keys[i];
    mine := EXISTS (SELECT FROM lm1.lease x WHERE x.key = k AND x.token = tok AND x.ends > t)
      OR EXISTS (SELECT FROM lm1.share x WHERE x.key = k AND x.token = tok AND x.ends > t);
    held := mine;
    IF NOT held THEN
      w := ROW(k, 0, tok, ttl, holders[i], fenced, id, channel, callers, t + lm1.millis(waits));
      IF id IS NOT NULL AND EXISTS (SELECT FROM lm1.waiter x WHERE x.key = k) THEN
        rank := lm1.join_queue(w);
      END IF;
      SELECT p.next, p.channels, p.pushes INTO next, channels, pushes
        FROM lm1.pass(k, tok, t, channels, pushes) p;
      held := next = 'own' OR next = 'none' AND lm1.admits(k, holders[i], t);
    END IF;
    IF held THEN
      fences[i] := lm1.next_fences(k, fenced, t);
    END IF;
    IF held AND fences[i] IS NULL THEN
      IF EXISTS (SELECT FROM lm1.fence x WHERE x.key = k AND x.fence >= 9007199254740992) THEN
        RAISE EXCEPTION 'the fence of % is at 2^53', k USING ERRCODE = 'LM001';
      ELSIF mine THEN
        RAISE EXCEPTION 'a transaction has locked the last fence' USING ERRCODE = '55P03';
      END IF;
    END IF;
    IF NOT held OR fences[i] IS NULL THEN
      nth := i - 1;
      fences := NULL;
      IF id IS NOT NULL THEN
        rank := lm1.join_queue(w);
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
    holder := left(holder, -32) || 'shared';
    IF cardinality(pushes) = 0 THEN
      -- Nobody was granted anything that a crash must not forget.
      PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN;
  END IF;
  rank := NULL;
  FOR i IN 1..cardinality(keys) LOOP
    PERFORM lm1.enter(keys[i], tok, ttl, holders[i], t);
    DELETE FROM lm1.waiter x WHERE x.key = keys[i] AND x.token = tok;
    IF holders[i] <> 1 THEN
      PERFORM lm1.note_sharing(keys[i], t);
      -- Those behind it may share the key, too.
      SELECT p.channels, p.pushes INTO channels, pushes
        FROM lm1.pass(keys[i], tok, t, channels, pushes) p;
    END IF;
  END LOOP;
END $$;

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
        token = CASE WHEN mine AND keep > 0 THEN left(tok, -32) || md5(tok) END,
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
        INSERT INTO lm1.share VALUES (k, left(tok, -32) || md5(tok), t + lm1.millis(keep));
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
-- NULL for those whose rows are locked, so that these do not delay the others: ask for each alone.
CREATE OR REPLACE FUNCTION lm1.renew(keys text[], tokens text[], ttls bigint[]) RETURNS boolean[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  held boolean[];
BEGIN
  PERFORM lm1.durable();
  FOR i IN 1..cardinality(keys) LOOP
    -- Before the clock is read: a holder that shares the key has another row.
    PERFORM FROM lm1.lease WHERE key = keys[i] FOR UPDATE SKIP LOCKED;
    IF NOT FOUND AND EXISTS (SELECT FROM lm1.lease WHERE key = keys[i]) THEN
      IF cardinality(keys) > 1 THEN
        held[i] := NULL;
        CONTINUE;
      END IF;
      PERFORM FROM lm1.lease WHERE key = keys[i] FOR UPDATE;
    END IF;
    UPDATE lm1.lease SET ends = greatest(ends, clock_timestamp() + lm1.millis(ttls[i]))
      WHERE key = keys[i] AND token = tokens[i] AND ends > clock_timestamp();
    IF NOT FOUND THEN
      UPDATE lm1.share SET ends = greatest(ends, clock_timestamp() + lm1.millis(ttls[i]))
        WHERE key = keys[i] AND token = tokens[i] AND ends > clock_timestamp();
      IF FOUND THEN
        UPDATE lm1.lease SET used = clock_timestamp() WHERE key = keys[i];
      END IF;
    END IF;
    held[i] := FOUND;
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

CREATE OR REPLACE FUNCTION lm1.kept(k text) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT (SELECT value FROM lm1.value WHERE key = k AND ends > clock_timestamp())
$$;

-- Keeps a value for `keep`, if the token holds the key, which stays so until the end of the call.
CREATE OR REPLACE FUNCTION lm1.keep(k text, tok text, v text, keep bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
BEGIN
  PERFORM lm1.durable();
  PERFORM lm1.lock_row(k);
  IF NOT EXISTS (SELECT FROM lm1.lease l WHERE l.key = k AND token = tok AND ends > clock_timestamp())
  THEN
    RETURN false;
  END IF;
  INSERT INTO lm1.value VALUES (k, v, clock_timestamp() + lm1.millis(keep))
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, ends = excluded.ends;
  RETURN true;
END $$;

-- Forgets keys that nobody has used for a minute, and their fences after `retention`, among the next
-- ones after a key. Returns where to go on, NULL at the end.
CREATE OR REPLACE FUNCTION lm1.tidy(retention bigint, after text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  unused timestamptz := clock_timestamp() - interval '1 min';
  last_lease text COLLATE "C";
  last_fence text COLLATE "C";
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
  IF least(last_lease, last_fence) IS NULL THEN
    DELETE FROM lm1.share WHERE ends < unused;
    DELETE FROM lm1.value WHERE ends < unused;
    DELETE FROM lm1.call WHERE state = 'gone' AND at < clock_timestamp();
    DELETE FROM lm1.idle WHERE ends < unused;
  END IF;
  RETURN least(last_lease, last_fence);
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lm1 FROM PUBLIC;
-- The deferred calls of lockmacro. Times that functions take and return are in milliseconds; due
-- times are the server's.

-- A call. It waits until `at`; runs, and `at` is the end of its worker's lease; is dead since `at`;
-- or is gone, and its id is known until `at`. `claim` grows with each worker that takes it, and is
-- put into `settled` by one that ends its work. A `single` call is the only one of its key to wait.
CREATE TABLE IF NOT EXISTS lm1.call (
  function text COLLATE "C",
  id text COLLATE "C",
  arguments text NOT NULL,
  key text COLLATE "C" NOT NULL,
  single boolean NOT NULL,
  attempts bigint NOT NULL,
  state text COLLATE "C" NOT NULL DEFAULT 'waiting',
  at timestamptz NOT NULL,
  tried bigint NOT NULL DEFAULT 0,
  busy bigint NOT NULL DEFAULT 0,
  claim bigint NOT NULL DEFAULT 0,
  settled bigint NOT NULL DEFAULT 0,
  request text,
  error text,
  PRIMARY KEY (function, id)
);
-- Until when later calls put a single one off, where they do. Tables of version 1 lack it.
ALTER TABLE lm1.call ADD COLUMN IF NOT EXISTS until timestamptz;
CREATE INDEX IF NOT EXISTS call_at ON lm1.call (function, state, at);
-- Keys may be too long for an index.
CREATE UNIQUE INDEX IF NOT EXISTS call_single ON lm1.call (function, md5(key))
  WHERE single AND state = 'waiting';

-- The workers that wait for a call of a function.
CREATE UNLOGGED TABLE IF NOT EXISTS lm1.idle (
  function text COLLATE "C",
  worker text COLLATE "C",
  channel text NOT NULL,
  ends timestamptz NOT NULL,
  PRIMARY KEY (function, worker)
) WITH (fillfactor = 50);

-- How many calls of a function wait, as counted some seconds ago.
CREATE UNLOGGED TABLE IF NOT EXISTS lm1.crowd (
  function text COLLATE "C" PRIMARY KEY,
  waiting bigint NOT NULL,
  counted timestamptz NOT NULL
);

-- Whether too many calls wait. To count all of them for each one that is stored would take long.
CREATE OR REPLACE FUNCTION lm1.is_full(f text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  most constant bigint := 1000000;
  n bigint;
BEGIN
  IF EXISTS (
    SELECT FROM lm1.crowd WHERE function = f AND waiting < most
      AND counted > clock_timestamp() - interval '10 s'
  ) THEN
    RETURN false;
  END IF;
  SELECT count(*) INTO n FROM (
    SELECT FROM lm1.call WHERE function = f AND state = 'waiting' LIMIT most
  ) x;
  INSERT INTO lm1.crowd VALUES (f, n, clock_timestamp())
    ON CONFLICT (function) DO UPDATE SET waiting = excluded.waiting, counted = excluded.counted;
  RETURN n >= most;
END $$;

-- Whether no call of a function is due earlier: idle workers have to learn of this one.
CREATE OR REPLACE FUNCTION lm1.is_first(f text, due timestamptz) RETURNS boolean LANGUAGE sql AS $$
  SELECT NOT EXISTS (
    SELECT FROM lm1.call WHERE function = f AND state = 'waiting' AND at < due
  )
$$;

-- Removes a call. A caller without an answer stores it again within 30 s.
CREATE OR REPLACE FUNCTION lm1.forget_call(f text, i text) RETURNS void LANGUAGE sql AS $$
  UPDATE lm1.call SET state = 'gone', arguments = '', error = NULL,
    at = clock_timestamp() + interval '30 s' WHERE function = f AND id = i
$$;

-- Makes a call wait. A single one is merged into the one of its key that waits already, with the
-- larger of both counters, so that a call that always fails comes to an end.
CREATE OR REPLACE FUNCTION lm1.wait_call(f text, i text, due timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  c lm1.call;
BEGIN
  SELECT * INTO c FROM lm1.call WHERE function = f AND id = i;
  IF NOT c.single THEN
    UPDATE lm1.call SET state = 'waiting', at = due WHERE function = f AND id = i;
    RETURN;
  END IF;
  LOOP
    UPDATE lm1.call SET at = least(at, due), tried = greatest(tried, c.tried),
      busy = greatest(busy, c.busy), error = coalesce(c.error, error)
      WHERE function = f AND md5(key) = md5(c.key) AND single AND state = 'waiting' AND id <> i;
    IF FOUND THEN
      PERFORM lm1.forget_call(f, i);
      RETURN;
    END IF;
    BEGIN
      UPDATE lm1.call SET state = 'waiting', at = due WHERE function = f AND id = i;
      RETURN;
    EXCEPTION WHEN unique_violation THEN
      -- Another one waits since then.
    END;
  END LOOP;
END $$;

-- Makes a call a dead letter; only the latest dead letters are kept.
CREATE OR REPLACE FUNCTION lm1.give_up(f text, i text, why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE lm1.call SET state = 'dead', at = clock_timestamp(), error = why
    WHERE function = f AND id = i;
  PERFORM lm1.forget_call(f, x.id) FROM (
    SELECT id FROM lm1.call WHERE function = f AND state = 'dead'
      ORDER BY at DESC OFFSET 10000 FOR UPDATE SKIP LOCKED
  ) x;
END $$;

-- Stores a call. Idempotent for an id, also shortly after the call is gone. `keep` is `all`, or which
-- of the calls with the same key waits: `first` or `latest`; later calls put it off for `at_most`.
-- Returns the id under which it waits, NULL when too many wait, and whether idle workers have to
-- learn of it.
CREATE OR REPLACE FUNCTION lm1.put_call(
  f text, i text, delay bigint, args text, k text, keep text, leases bigint, at_most bigint,
  OUT stored text, OUT due bigint, OUT first boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  t timestamptz;
  c lm1.call;
  other lm1.call;
BEGIN
  PERFORM lm1.durable();
  first := false;
  IF keep = 'latest' THEN
    -- The first one of a repeated request may still be at work.
    PERFORM pg_advisory_xact_lock(hashtextextended(i, 0));
  END IF;
  DELETE FROM lm1.call x
    WHERE x.function = f AND x.id = i AND x.state = 'gone' AND x.at <= clock_timestamp();
  LOOP
    t := clock_timestamp();
    SELECT * INTO c FROM lm1.call x WHERE x.function = f AND x.id = i;
    IF keep <> 'all' AND coalesce(c.state, 'gone') = 'gone' THEN
      SELECT * INTO other FROM lm1.call x
        WHERE x.function = f AND md5(x.key) = md5(k) AND x.single AND x.state = 'waiting';
      IF FOUND AND keep = 'latest' AND c.id IS NULL THEN
        -- Never earlier: it may have failed, and wait for the next attempt.
        UPDATE lm1.call x SET arguments = args, attempts = leases, tried = 0, busy = 0,
          claim = x.claim + 1, settled = x.claim + 1,
          at = greatest(x.at, least(t + lm1.millis(delay), coalesce(x.until, x.at)))
          WHERE x.function = f AND x.id = other.id AND x.state = 'waiting' RETURNING * INTO other;
        CONTINUE WHEN NOT FOUND;
        -- A repeated request must not replace the arguments of later ones.
        INSERT INTO lm1.call (function, id, arguments, key, single, attempts, state, at)
          VALUES (f, i, '', k, false, leases, 'gone', t + interval '30 s') ON CONFLICT DO NOTHING;
      END IF;
      IF other.id IS NOT NULL THEN
        c := other;
      END IF;
    END IF;
    IF c.id IS NOT NULL THEN
      stored := c.id;
      due := CASE WHEN c.state = 'waiting' THEN greatest(lm1.left_at(t, c.at), 0) ELSE 0 END;
      RETURN;
    END IF;
    EXIT WHEN lm1.is_full(f);
    INSERT INTO lm1.call (function, id, arguments, key, single, attempts, at, until)
      VALUES (f, i, args, k, keep <> 'all', leases, t + lm1.millis(delay),
        t + lm1.millis(nullif(at_most, 0))) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      stored := i;
      due := delay;
      first := lm1.is_first(f, t + lm1.millis(delay));
      RETURN;
    END IF;
  END LOOP;
END $$;

-- Takes calls that are due, for a worker, for the time of a lease. Those whose lease has ended go
-- back first, or become dead letters after too many such leases. A repeated request returns the
-- calls that it was given before, with a new lease. Where there is none, a worker with a channel
-- becomes idle.
--
-- Returns rows of three kinds: `call`; `dead`, a new dead letter, with the number of its leases as
-- `claim`; and `again`, with the time after which to look again.
CREATE OR REPLACE FUNCTION lm1.take_calls(
  functions text[], most bigint, lease bigint, req text, repeated boolean,
  idle_worker text, idle_channel text
) RETURNS TABLE (
  kind text, function text, id text, arguments text, key text, tried bigint, busy bigint, claim bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := clock_timestamp();
  f text;
  c lm1.call;
  n bigint := 0;
  room bigint := 262144;
  tick bigint := CASE WHEN idle_channel IS NULL THEN 250 ELSE 2000 END;
BEGIN
  PERFORM lm1.durable();
  -- The first one may still be at work.
  PERFORM pg_advisory_xact_lock(hashtextextended(req, 0));
  IF repeated THEN
    RETURN QUERY UPDATE lm1.call x SET at = clock_timestamp() + lm1.millis(lease)
      WHERE x.function = ANY (functions) AND x.state = 'running' AND x.request = req
      RETURNING 'call', x.function, x.id, x.arguments, x.key, x.tried, x.busy, x.claim;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  DELETE FROM lm1.call x USING (
    SELECT y.function, y.id FROM lm1.call y
      WHERE y.function = ANY (functions) AND y.state = 'gone' AND y.at <= t
      LIMIT 1000 FOR UPDATE SKIP LOCKED
  ) gone WHERE x.function = gone.function AND x.id = gone.id;
  -- In one order: a single call waits for others that go back with the same key.
  FOR c IN SELECT * FROM (
    SELECT * FROM lm1.call x WHERE x.function = ANY (functions) AND x.state = 'running' AND x.at <= t
      ORDER BY x.at LIMIT 100 FOR UPDATE SKIP LOCKED
  ) lapsed ORDER BY lapsed.function, lapsed.key LOOP
    IF c.claim - c.settled <= c.attempts THEN
      PERFORM lm1.wait_call(c.function, c.id, t);
    ELSE
      PERFORM lm1.give_up(c.function, c.id, (c.claim - c.settled) || ' runs have ended without a report:'
        ' look for workers that crash or block, then retry the call');
      RETURN QUERY SELECT 'dead', c.function, c.id, '', '', c.tried, c.busy, c.claim - c.settled;
    END IF;
  END LOOP;
  -- The functions, by the times of their first calls.
  <<taking>>
  FOR f IN SELECT g FROM unnest(functions) AS u(g), LATERAL (
    SELECT x.at FROM lm1.call x WHERE x.function = g AND x.state = 'waiting' AND x.at <= t
      ORDER BY x.at LIMIT 1
  ) first ORDER BY first.at LOOP
    FOR c IN SELECT * FROM lm1.call x WHERE x.function = f AND x.state = 'waiting' AND x.at <= t
      ORDER BY x.at LIMIT most - n FOR UPDATE SKIP LOCKED LOOP
      room := room - octet_length(c.arguments);
      EXIT taking WHEN room < 0 AND n > 0;
      n := n + 1;
      UPDATE lm1.call x SET state = 'running', at = clock_timestamp() + lm1.millis(lease),
        tried = x.tried + 1, claim = x.claim + 1, request = req
        WHERE x.function = c.function AND x.id = c.id;
      RETURN QUERY SELECT 'call', c.function, c.id, c.arguments, c.key, c.tried + 1, c.busy, c.claim + 1;
    END LOOP;
  END LOOP;
  IF n > 0 THEN
    RETURN;
  END IF;
  RETURN QUERY SELECT 'again', '', '', '', '', 0::bigint, 0::bigint, least(tick, (
    SELECT min(greatest(lm1.left_at(t, next.at), 0))
      FROM unnest(functions) AS u(g), unnest('{waiting,running}'::text[]) AS s(state), LATERAL (
        SELECT x.at FROM lm1.call x WHERE x.function = g AND x.state = s.state ORDER BY x.at LIMIT 1
      ) next
  ));
  UPDATE lm1.idle x SET ends = t + 2 * lm1.millis(tick)
    WHERE x.function = ANY (functions) AND x.worker = idle_worker AND x.ends > t;
  IF NOT FOUND AND idle_channel IS NOT NULL THEN
    INSERT INTO lm1.idle SELECT g, idle_worker, idle_channel, t + 2 * lm1.millis(tick)
      FROM unnest(functions) AS u(g)
      ON CONFLICT (function, worker) DO UPDATE SET ends = excluded.ends;
    -- A call that is stored just now may not know of the worker.
    RETURN QUERY SELECT 'again', '', '', '', '', 0::bigint, 0::bigint, 0::bigint;
  END IF;
END $$;

-- Sends pushes. One without a channel is the name of a function, for its idle workers.
CREATE OR REPLACE FUNCTION lm1.push(channels text[], pushes text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
BEGIN
  PERFORM pg_notify(c, p) FROM unnest(channels, pushes) AS x(c, p) WHERE c <> '';
  PERFORM pg_notify(idle.channel, idle.worker || '|0|0|0')
    FROM unnest(channels, pushes) AS x(c, p), LATERAL (
      SELECT * FROM lm1.idle WHERE c = '' AND function = p AND ends > clock_timestamp() LIMIT 100
    ) idle;
END $$;

-- Whether the worker that took the call with this claim still has it, also when its lease has ended
-- and nobody has taken it since; but for a single call, as others rely on that one being run.
CREATE OR REPLACE FUNCTION lm1.has_call(c lm1.call, n bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT c.claim = n AND c.settled <> n AND c.state <> 'gone' AND (c.state = 'running' OR NOT c.single)
$$;

-- Renews a worker's lease on a call. Returns whether it has it.
CREATE OR REPLACE FUNCTION lm1.keep_call(f text, i text, n bigint, lease bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
BEGIN
  PERFORM lm1.durable();
  UPDATE lm1.call x SET state = 'running', at = clock_timestamp() + lm1.millis(lease)
    WHERE function = f AND id = i AND lm1.has_call(x, n);
  RETURN FOUND;
END $$;

-- Ends the work on a call: `how` is `done`; `again` after a failure; `busy` or `back`, which are no
-- tries; or `dead`. Idempotent until the call is taken again. `held`: whether the worker had it.
CREATE OR REPLACE FUNCTION lm1.settle_call(
  f text, i text, n bigint, how text, delay bigint, why text,
  OUT held boolean, OUT first boolean
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  c lm1.call;
  due timestamptz;
BEGIN
  PERFORM lm1.durable();
  SELECT * INTO c FROM lm1.call WHERE function = f AND id = i FOR UPDATE;
  held := coalesce(c.claim = n AND c.settled = n OR lm1.has_call(c, n), false);
  first := false;
  IF NOT held OR c.settled = n THEN
    RETURN;
  END IF;
  UPDATE lm1.call SET settled = n, busy = c.busy + (how = 'busy')::int,
    tried = greatest(c.tried - (how IN ('busy', 'back'))::int, 0),
    error = CASE WHEN how IN ('again', 'busy') THEN why ELSE c.error END
    WHERE function = f AND id = i;
  IF how = 'done' THEN
    PERFORM lm1.forget_call(f, i);
  ELSIF how = 'dead' THEN
    PERFORM lm1.give_up(f, i, why);
  ELSE
    due := clock_timestamp() + lm1.millis(delay);
    PERFORM lm1.wait_call(f, i, due);
    first := lm1.is_first(f, due);
  END IF;
END $$;

-- Lists calls by due time, with at most 256 KiB of arguments and errors, but for the first one.
-- Each row has the number of all; the first one has nothing else.
CREATE OR REPLACE FUNCTION lm1.list_calls(f text, which text, skipped bigint, most bigint)
RETURNS TABLE (
  total bigint, id text, arguments text, key text, tried bigint, busy bigint, error text, rest bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := clock_timestamp();
  n bigint;
  c lm1.call;
  listed bigint := 0;
  room bigint := 262144;
BEGIN
  SELECT count(*) INTO n FROM lm1.call x WHERE x.function = f AND x.state = which;
  RETURN QUERY SELECT n, '', '', '', 0::bigint, 0::bigint, '', 0::bigint;
  FOR c IN SELECT * FROM lm1.call x WHERE x.function = f AND x.state = which
    ORDER BY x.at, x.id LIMIT most OFFSET skipped LOOP
    room := room - octet_length(c.arguments) - octet_length(coalesce(c.error, ''));
    EXIT WHEN room < 0 AND listed > 0;
    listed := listed + 1;
    RETURN QUERY SELECT n, c.id, c.arguments, c.key, c.tried, c.busy, c.error, lm1.left_at(t, c.at);
  END LOOP;
END $$;

-- Retries calls from the start, or removes them: one, or so many dead letters, the oldest first; only
-- calls that are not running. Returns their number.
CREATE OR REPLACE FUNCTION lm1.amend_calls(f text, i text, dead bigint, retries boolean) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
DECLARE
  c text;
  ids text[];
BEGIN
  PERFORM lm1.durable();
  IF i IS NOT NULL THEN
    SELECT array_agg(x.id) INTO ids FROM (
      SELECT id FROM lm1.call WHERE function = f AND id = i AND state IN ('waiting', 'dead')
        FOR UPDATE
    ) x;
  ELSE
    -- In the order of `take_calls`.
    SELECT array_agg(x.id ORDER BY x.key) INTO ids FROM (
      SELECT id, key FROM lm1.call WHERE function = f AND state = 'dead'
        ORDER BY at LIMIT dead FOR UPDATE SKIP LOCKED
    ) x;
  END IF;
  FOREACH c IN ARRAY coalesce(ids, '{}') LOOP
    IF retries THEN
      -- A worker that had it must not end it any more.
      UPDATE lm1.call SET tried = 0, busy = 0, claim = claim + 1, settled = claim + 1
        WHERE function = f AND id = c;
      PERFORM lm1.wait_call(f, c, clock_timestamp());
    ELSE
      PERFORM lm1.forget_call(f, c);
    END IF;
  END LOOP;
  RETURN coalesce(cardinality(ids), 0);
END $$;

-- The functions that have calls.
CREATE OR REPLACE FUNCTION lm1.look_for_functions(most bigint) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT DISTINCT function FROM lm1.call WHERE state <> 'gone' ORDER BY function LIMIT most
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA lm1 FROM PUBLIC;
