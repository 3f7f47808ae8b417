-- The locks of lockmacro in PostgreSQL. This makes their schema, or brings it to version <version>
-- and keeps all locks: one statement, so that it is done whole or not at all.
DO $install$
DECLARE
  settings constant text[] := '{search_path,role,lock_timeout}';
  earlier text[];
  ns oid;
  owner oid;
  present int;
  other text;
  foreign_parts text;
  blocker text;
  made oid;
  before oid[];
  name text;
  callers jsonb;
BEGIN
  -- Until the path is set, no name is looked up in schemas where others may have made such a thing.
  earlier := ARRAY[pg_catalog.current_setting('search_path'), pg_catalog.current_setting('role'),
    pg_catalog.current_setting('lock_timeout')];
  PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  -- One after the other.
  PERFORM pg_advisory_xact_lock(hashtext('lm1'));
  SELECT oid, nspowner INTO ns, owner FROM pg_namespace WHERE nspname = 'lm1';
  -- Read and not called: the owner of the schema may have written another one. What a backslash means
  -- in a string depends on `standard_conforming_strings`, and so there is none in all of this.
  SELECT substring(prosrc FROM '^SELECT ([0-9]+)$')::int INTO present FROM pg_proc
    WHERE pronamespace = ns AND proname = 'version' AND pronargs = 0
      AND to_regclass('lm1.lease') IS NOT NULL;
  SELECT pg_describe_object(classid, objid, objsubid) INTO other FROM pg_depend
    WHERE refclassid = 'pg_namespace'::regclass AND refobjid = ns AND deptype = 'n' LIMIT 1;
  IF present IS NULL AND other IS NOT NULL THEN
    RAISE EXCEPTION 'the schema lm1 has other things in it, as the %: choose another', other
      USING ERRCODE = 'LM002';
  END IF;
  -- The functions have the rights of their owner, and run what a table's owner has attached to it.
  SELECT string_agg(format('ALTER %s OWNER TO %s', thing, owner::regrole), '; ')
    INTO foreign_parts FROM (
    SELECT 'ROUTINE ' || oid::regprocedure FROM pg_proc
      WHERE pronamespace = ns AND proname = ANY ('{<routines>}') AND proowner <> owner
    UNION ALL SELECT 'TABLE ' || oid::regclass FROM pg_class
      WHERE relnamespace = ns AND relname = ANY ('{<tables>}') AND relowner <> owner
  ) x (thing);
  IF foreign_parts IS NOT NULL THEN
    RAISE EXCEPTION 'lm1 must belong to one user, or its owner gets the rights of others: run %',
      foreign_parts USING ERRCODE = 'LM002';
  ELSIF present >= <version> THEN
    PERFORM set_config(x, earlier[n], true) FROM unnest(settings) WITH ORDINALITY s (x, n);
    RETURN;
  ELSIF NOT pg_has_role(owner, 'MEMBER') THEN
    RAISE EXCEPTION 'lm1 belongs to %: install it as that user', owner::regrole
      USING ERRCODE = 'LM002';
  ELSIF ns IS NULL THEN
    CREATE SCHEMA lm1;
    ns := to_regnamespace('lm1');
  ELSE
    PERFORM set_config('role', pg_get_userbyid(owner), true);
  END IF;
  SELECT coalesce(array_agg(oid), '{}') INTO before FROM pg_proc WHERE pronamespace = ns;
  SELECT coalesce(jsonb_object_agg(proname, names), '{}') INTO callers FROM (
    SELECT proname, string_agg(DISTINCT
        CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, ', ') AS names
      FROM pg_proc, aclexplode(proacl) a WHERE pronamespace = ns GROUP BY proname
  ) x;
  BEGIN
    -- While this waits for a lock on a table, all calls wait behind it.
    PERFORM set_config('lock_timeout', '200ms', true);
    EXECUTE $schema$
<schema>
    $schema$;
  EXCEPTION WHEN lock_not_available THEN
    PERFORM set_config('role', earlier[2], true);
    SELECT CASE WHEN l.pid IS NULL THEN ' (one that is prepared: see pg_prepared_xacts)'
        ELSE format(' (process %s, %s)', l.pid,
          concat_ws(', ', usename, application_name, 'since ' || xact_start)) END
      INTO blocker
      FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      WHERE c.relnamespace = ns AND l.granted
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND l.pid IS DISTINCT FROM pg_backend_pid() ORDER BY xact_start LIMIT 1;
    RAISE EXCEPTION 'a transaction uses the tables of lm1%: wait until it has ended',
      coalesce(blocker, '')
      USING ERRCODE = '55P03';
  END;
  -- New routines are for those who may call the others, and those of fences for those who may check them.
  FOR made, name IN SELECT oid, proname FROM pg_proc
    WHERE pronamespace = ns AND oid <> ALL (before)
  LOOP
    EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', made::regprocedure);
    name := CASE name WHEN 'hold_fence' THEN 'check_fence' WHEN 'hold_recorded' THEN 'record_fence'
      ELSE name END;
    -- In version 2 one of them did both.
    name := CASE WHEN callers ? name THEN name WHEN name = 'record_fence' THEN 'check_fence'
      ELSE 'ask' END;
    IF callers ? name THEN
      EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %s', made::regprocedure, callers ->> name);
    END IF;
  END LOOP;
  PERFORM set_config(x, earlier[n], true) FROM unnest(settings) WITH ORDINALITY s (x, n);
END $install$;
