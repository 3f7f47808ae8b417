-- The jobs of lockmacro. Times that functions take and return are in milliseconds; due
-- times are the server's.

-- A job. It waits until `at`; runs, and `at` is the end of its worker's lease; is dead since `at`;
-- or is gone, and its id is known until `at`. `claim` grows with each worker that takes it, and is
-- put into `settled` by one that ends its work. A `single` job is the only one of its key to wait.
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
-- Only where they are missing: each waits for those who use the table, and all others for it.
DO $$ BEGIN
  -- Until when later jobs put a single one off, where they do. Tables of version 1 lack it.
  IF NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = 'lm1.call'::regclass AND attname = 'until'
  ) THEN
    ALTER TABLE lm1.call ADD COLUMN until timestamptz;
  END IF;
  -- When a single one was stored last. Those of version 2 lack it.
  IF NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = 'lm1.call'::regclass AND attname = 'put_at'
  ) THEN
    ALTER TABLE lm1.call ADD COLUMN put_at timestamptz;
  END IF;
  IF to_regclass('lm1.call_at') IS NULL THEN
    CREATE INDEX call_at ON lm1.call (function, state, at);
  END IF;
  IF to_regclass('lm1.call_single') IS NULL THEN
    -- Keys may be too long for an index.
    CREATE UNIQUE INDEX call_single ON lm1.call (function, md5(key))
      WHERE single AND state = 'waiting';
  END IF;
END $$;

-- The workers that wait for a job of a function.
CREATE UNLOGGED TABLE IF NOT EXISTS lm1.idle (
  function text COLLATE "C",
  worker text COLLATE "C",
  channel text NOT NULL,
  ends timestamptz NOT NULL,
  PRIMARY KEY (function, worker)
) WITH (fillfactor = 50);

-- How many jobs of a function wait, as counted some seconds ago.
CREATE UNLOGGED TABLE IF NOT EXISTS lm1.crowd (
  function text COLLATE "C" PRIMARY KEY,
  waiting bigint NOT NULL,
  counted timestamptz NOT NULL
);

-- Whether too many jobs wait. To count all of them for each one that is stored would take long.
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

-- Whether no job of a function is due earlier: idle workers have to learn of this one.
CREATE OR REPLACE FUNCTION lm1.is_first(f text, due timestamptz) RETURNS boolean LANGUAGE sql AS $$
  SELECT NOT EXISTS (
    SELECT FROM lm1.call WHERE function = f AND state = 'waiting' AND at < due
  )
$$;

-- Removes a job. A caller without an answer stores it again within 30 s.
CREATE OR REPLACE FUNCTION lm1.forget_call(f text, i text) RETURNS void LANGUAGE sql AS $$
  UPDATE lm1.call SET state = 'gone', arguments = '', error = NULL,
    at = clock_timestamp() + interval '30 s' WHERE function = f AND id = i
$$;

-- Makes a job wait. A single one is merged into the one of its key that waits already, with the
-- larger of both counters, so that a job that always fails comes to an end.
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

-- Makes a job dead; only the latest dead jobs are kept.
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

-- Stores a job. Idempotent for an id, also shortly after the job is gone. `keep` is `all`, or which
-- of the jobs with the same key waits: `first` or `latest`; later jobs put it off for `at_most`.
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
  is_tried boolean;
  start bigint;
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
        is_tried := other.tried + other.busy > 0;
        -- One that was tried is as a first one: the pause after a failure with other arguments is
        -- not for these.
        UPDATE lm1.call x SET arguments = args, attempts = leases, tried = 0, busy = 0,
          claim = x.claim + 1, settled = x.claim + 1, put_at = t,
          until = CASE WHEN x.tried + x.busy = 0 THEN x.until
            ELSE t + lm1.millis(nullif(at_most, 0)) END,
          at = CASE WHEN x.tried + x.busy = 0
            THEN greatest(x.at, least(t + lm1.millis(delay), coalesce(x.until, x.at)))
            ELSE t + lm1.millis(delay) END
          WHERE x.function = f AND x.id = other.id AND x.state = 'waiting' RETURNING * INTO other;
        CONTINUE WHEN NOT FOUND;
        first := is_tried AND lm1.is_first(f, other.at);
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
    -- A worker of an earlier job with this id, which was removed, must not have this one.
    start := floor(random() * 1e9);
    INSERT INTO lm1.call
        (function, id, arguments, key, single, attempts, at, until, put_at, claim, settled)
      VALUES (f, i, args, k, keep <> 'all', leases, t + lm1.millis(delay),
        t + lm1.millis(nullif(at_most, 0)), t, start, start) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      stored := i;
      due := delay;
      first := lm1.is_first(f, t + lm1.millis(delay));
      RETURN;
    END IF;
  END LOOP;
END $$;

-- Takes jobs that are due, for a worker, for the time of a lease. Those whose lease has ended go
-- back first, or are dead after too many such leases. A repeated request returns the
-- jobs that it was given before, with a new lease. Where there is none, a worker with a channel
-- becomes idle.
--
-- Returns rows of three kinds: `call`; `dead`, a new dead job, with the number of its leases as
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
  -- In one order: a single job waits for others that go back with the same key.
  FOR c IN SELECT * FROM (
    SELECT * FROM lm1.call x WHERE x.function = ANY (functions) AND x.state = 'running' AND x.at <= t
      ORDER BY x.at LIMIT 100 FOR UPDATE SKIP LOCKED
  ) lapsed ORDER BY lapsed.function, lapsed.key LOOP
    IF c.claim - c.settled <= c.attempts THEN
      PERFORM lm1.wait_call(c.function, c.id, t);
    ELSE
      PERFORM lm1.give_up(c.function, c.id, (c.claim - c.settled) || ' runs have ended without a report:'
        ' look for workers that crash or block, then retry the job');
      RETURN QUERY SELECT 'dead', c.function, c.id, '', '', c.tried, c.busy, c.claim - c.settled;
    END IF;
  END LOOP;
  -- The functions, by the times of their first jobs.
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
    -- A job that is stored just now may not know of the worker.
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

-- Whether the worker that took the job with this claim still has it, also when its lease has ended
-- and nobody has taken it since; but for a single job, as others rely on that one being run.
CREATE OR REPLACE FUNCTION lm1.has_call(c lm1.call, n bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT c.claim = n AND c.settled <> n AND c.state <> 'gone' AND (c.state = 'running' OR NOT c.single)
$$;

-- Renews a worker's lease on a job. Returns whether it has it.
CREATE OR REPLACE FUNCTION lm1.keep_call(f text, i text, n bigint, lease bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
BEGIN
  PERFORM lm1.durable();
  UPDATE lm1.call x SET state = 'running', at = clock_timestamp() + lm1.millis(lease)
    WHERE function = f AND id = i AND lm1.has_call(x, n);
  RETURN FOUND;
END $$;

-- Ends the work on a job: `how` is `done`; `again` after a failure; `busy` or `back`, which are no
-- tries; or `dead`. Idempotent until the job is taken again. `held`: whether the worker had it.
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

-- Lists jobs by due time, with at most 256 KiB of arguments and errors, but for the first one.
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

-- Retries jobs from the start, or removes them: one, or so many dead jobs, the oldest first; only
-- jobs that are not running. Returns their number.
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
      -- Its id is not known any more: who stores the job again has it stored.
      DELETE FROM lm1.call WHERE function = f AND id = c;
    END IF;
  END LOOP;
  RETURN coalesce(cardinality(ids), 0);
END $$;

-- The single jobs of a key that wait or run: when each was stored, in microseconds, and for how
-- many milliseconds it is stored. Those of version 2 were stored long ago.
CREATE OR REPLACE FUNCTION lm1.single_calls(f text, k text)
RETURNS TABLE (id text, stored bigint, age bigint)
LANGUAGE sql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT x.id, coalesce(lm1.micros(x.put_at), 0),
    coalesce(-lm1.left_at(clock_timestamp(), x.put_at), 9223372036854775807)
  FROM lm1.call x WHERE x.function = f AND x.id IN (
    SELECT c.id FROM lm1.call c WHERE c.function = f AND md5(c.key) = md5(k) AND c.single
      AND c.state = 'waiting'
    UNION ALL
    SELECT c.id FROM lm1.call c WHERE c.function = f AND c.single AND c.state = 'running'
  ) AND x.key = k
$$;

-- Removes such a job, unless it was stored again since.
CREATE OR REPLACE FUNCTION lm1.supersede_call(f text, i text, stored bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
BEGIN
  PERFORM lm1.durable();
  -- Its worker may be about to end it.
  UPDATE lm1.call c SET settled = c.claim WHERE c.function = f AND c.id = i
    AND c.state IN ('running', 'waiting') AND coalesce(lm1.micros(c.put_at), 0) = stored;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM lm1.forget_call(f, i);
  RETURN true;
END $$;

-- The functions that have jobs.
CREATE OR REPLACE FUNCTION lm1.look_for_functions(most bigint) RETURNS SETOF text
LANGUAGE sql SECURITY DEFINER SET search_path = lm1, pg_temp AS $$
  SELECT DISTINCT function FROM lm1.call WHERE state <> 'gone' ORDER BY function LIMIT most
$$;
