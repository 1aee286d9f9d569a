-- The tables and functions of leasehold's Postgres store, version 1. @schema@ is the schema's name.
--
-- A name's contenders stand in the order of seq. An entry holds if the weights up to and including it add up to at most the
-- smallest capacity among them. A program calls each function that writes as one statement, in a transaction of its own, at
-- READ COMMITTED; `fence` alone belongs into a transaction of the user.
--
-- Who may call the functions may take and end every lock in this schema. The schema is leasehold's own: what others create in
-- it would run with the rights of its owner.
CREATE SCHEMA @schema@;
SET LOCAL search_path = @schema@;

-- The origin of the numbers' high part. A change of timeline, system or counter begins another era. A crash does not: eras that
-- it used up would come again on another timeline, which forked before it. The first is the clock's, above a dropped schema's.
CREATE TABLE origin (one boolean PRIMARY KEY DEFAULT true CHECK (one), version int NOT NULL, era int NOT NULL,
                     crashes int NOT NULL, timeline int NOT NULL, system bigint NOT NULL, counter oid NOT NULL);
-- The recovery after a crash empties it, also on a standby that is promoted. Without a leap of the counter numbers would come
-- again: the log record of a number is on the disk only with a commit that waits for it.
CREATE UNLOGGED TABLE uncrashed (one boolean PRIMARY KEY DEFAULT true CHECK (one));
CREATE TABLE space (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, prefix text NOT NULL UNIQUE,
                    token_base bigint NOT NULL DEFAULT 0, record bytea, record_version bigint);
-- `epoch` refuses the requests of an older connection. `channel` has 128 random bits: nobody else can send to it; it is empty
-- if the client does not listen.
CREATE TABLE session (
  id bigint PRIMARY KEY, space int NOT NULL, channel text NOT NULL,
  epoch int NOT NULL DEFAULT 1, base bigint NOT NULL, moves boolean NOT NULL, ttl interval NOT NULL,
  lock_ms int NOT NULL, expires_at timestamptz NOT NULL, over boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Entries that were removed by force: a renewal tells how many. A count in `session` would wait for renewals, under a name's lock.
CREATE TABLE taken (session bigint, seq bigint, PRIMARY KEY (session, seq));
CREATE SEQUENCE counter AS bigint MAXVALUE 1099511627775;
-- `gone`: released while a fenced transaction keeps the row. There are no foreign keys: an entry without a session is dead.
CREATE TABLE contender (
  space int NOT NULL, name bytea NOT NULL, seq bigint NOT NULL, session bigint NOT NULL, owner bytea NOT NULL,
  weight int NOT NULL, capacity int NOT NULL, gone boolean NOT NULL DEFAULT false, asked interval, label text NOT NULL,
  metadata text,
  PRIMARY KEY (space, name, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- They are partial, so that no plan by name uses them.
CREATE INDEX contender_session ON contender (session) WHERE session > 0;
CREATE INDEX contender_asked ON contender (session) WHERE asked IS NOT NULL;
CREATE INDEX contender_gone ON contender (session) WHERE gone;
CREATE TABLE member (space int NOT NULL, owner bytea NOT NULL, session bigint NOT NULL, value bytea NOT NULL,
                     PRIMARY KEY (space, owner));

CREATE FUNCTION schema_version() RETURNS int LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS 'SELECT 1';

-- One transaction at a time for each name. A statement of its own: what follows it has a later snapshot.
CREATE FUNCTION enter(sp int, n bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(encode(n, 'hex'), sp::bigint));
END $$;

CREATE FUNCTION timeline() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  RETURN ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int;
EXCEPTION WHEN feature_not_supported OR undefined_function THEN
  RETURN 0;
END $$;

-- A commit without a wait for synchronous standbys counts as not durable where there are any. The client
-- needs the warning of a wait that was cancelled.
CREATE FUNCTION durably() RETURNS void LANGUAGE plpgsql AS $$
DECLARE now_set text := current_setting('synchronous_commit');
BEGIN
  IF now_set = 'off' OR now_set IN ('local', 'remote_write') AND current_setting('synchronous_standby_names') <> '' THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('client_min_messages') IN ('error', 'fatal', 'panic') THEN
    PERFORM set_config('client_min_messages', 'warning', true);
  END IF;
END $$;

CREATE FUNCTION is_same_era() RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = on AS $$
BEGIN
  RETURN EXISTS (SELECT FROM origin o, counter c, pg_control_system() p
    WHERE o.timeline = timeline() AND o.system = p.system_identifier AND o.counter = c.tableoid AND c.last_value < 549755813888);
END $$;

-- Begins another era if the server, its history or the counter is another one, or if half of the counter is used up; leaps over
-- the numbers that a crash may have lost. Eras follow the timelines: of two that fork from one the later has the larger. Every
-- lease starts anew, as another host's clock may have written when it ends. It commits durably: a crash must not forget an era
-- whose numbers were told. A forbidden scan costs so much that the server compiles the statement: seconds.
CREATE FUNCTION new_era() RETURNS void LANGUAGE plpgsql SET enable_seqscan = on AS $$
BEGIN
  IF is_same_era() AND EXISTS (SELECT FROM uncrashed) THEN RETURN; END IF;
  -- Only one transaction begins it: the others look again in a statement of their own.
  PERFORM FROM origin o FOR UPDATE;
  PERFORM durably();
  IF is_same_era() THEN
    IF EXISTS (SELECT FROM uncrashed) THEN RETURN; END IF;
    PERFORM setval('counter', c.last_value + 16777216) FROM counter c;
    UPDATE origin o SET crashes = o.crashes + 1;
  ELSE
    IF (SELECT c.last_value >= 549755813888 FROM counter c) THEN ALTER SEQUENCE counter RESTART; END IF;
    UPDATE origin o SET era = o.era + greatest(1, timeline() - o.timeline), timeline = timeline(),
      counter = 'counter'::regclass::oid, system = (SELECT p.system_identifier FROM pg_control_system() p);
  END IF;
  INSERT INTO uncrashed VALUES (true) ON CONFLICT DO NOTHING;
  UPDATE session x SET expires_at = clock_timestamp() + x.ttl WHERE NOT x.over;
END $$;

-- Which era it is, and after which crash: a connection to a pooler does not break by either.
CREATE FUNCTION past() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT (o.era::bigint << 32) | o.crashes::bigint FROM origin o WHERE o.one);
END $$;

CREATE FUNCTION era() RETURNS int LANGUAGE plpgsql AS $$
DECLARE e int; tl int := timeline();
BEGIN
  SELECT o.era INTO e FROM origin o, uncrashed u WHERE o.one AND u.one AND o.timeline = tl;
  IF e IS NULL THEN PERFORM new_era(); SELECT o.era INTO e FROM origin o WHERE o.one; END IF;
  RETURN e;
END $$;

-- First in every function that decides. With one snapshot for a whole transaction a function does not see what was committed
-- before it got its lock. A session waits for locks for as long as it said: then the error comes before the client's own bound.
-- Returns the bound that counts: one of a larger era is of a history that is gone, where a server came back as it was before.
CREATE FUNCTION begun(s bigint DEFAULT NULL, low bigint DEFAULT 0) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'leasehold needs the isolation level read committed' USING ERRCODE = 'LH003';
  END IF;
  PERFORM set_config('lock_timeout', x.lock_ms::text, true) FROM session x WHERE x.id = s;
  RETURN CASE WHEN low >> 40 > era() THEN 0 ELSE low END;
END $$;

CREATE FUNCTION living(s bigint) RETURNS session LANGUAGE plpgsql AS $$
DECLARE x session;
BEGIN
  SELECT * INTO x FROM session y WHERE y.id = s AND NOT y.over AND y.expires_at > clock_timestamp();
  IF NOT FOUND THEN RAISE EXCEPTION 'session is over' USING ERRCODE = 'LH001'; END IF;
  RETURN x;
END $$;

-- The next number. The era is read after it: the lock of nextval keeps the counter from being restarted.
CREATE FUNCTION next_number() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint := nextval('counter');
BEGIN
  RETURN (SELECT o.era::bigint << 40 FROM origin o WHERE o.one) | n;
END $$;

-- Takes out the leaver, entries that are marked as gone, and those of sessions that are over; tells the ones that hold because
-- of that. It waits for nobody: what another transaction has locked stays, counts, and is looked at again.
CREATE FUNCTION settle(sp int, n bytea, low bigint, leaver bigint, tell boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE leaving bigint[]; h record; stays boolean;
BEGIN
  WITH late AS (
    SELECT x.id FROM session x
    WHERE x.id IN (SELECT c.session FROM contender c WHERE c.space = sp AND c.name = n AND c.seq >= low)
      AND NOT x.over AND x.expires_at <= clock_timestamp()
    FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE session x SET over = true FROM late WHERE x.id = late.id;
  -- After a crash the session would live again, before the next holder.
  IF FOUND THEN PERFORM durably(); END IF;
  SELECT array_agg(y.seq) INTO leaving FROM (
    SELECT c.seq FROM contender c LEFT JOIN session x ON x.id = c.session
    WHERE c.space = sp AND c.name = n AND c.seq >= low AND (c.seq = leaver OR c.gone OR x.over IS NOT FALSE)
    FOR UPDATE OF c SKIP LOCKED) y;
  -- A fenced transaction keeps the leaver: the next one is asked to look until that has ended.
  stays := leaver IS NOT NULL AND leaver <> ALL (coalesce(leaving, '{}'));
  IF stays THEN
    UPDATE contender c SET gone = true WHERE c.space = sp AND c.name = n AND c.seq = leaver;
    leaving := leaving || leaver;
  END IF;
  IF leaving IS NULL THEN RETURN; END IF;
  IF tell THEN
    FOR h IN
      SELECT y.seq, x.channel FROM (
        SELECT c.seq, c.session, c.seq = ANY (leaving) AS leaves,
               sum(c.weight::bigint) OVER w <= min(c.capacity) OVER w AS held,
               sum(c.weight::bigint) FILTER (WHERE c.seq <> ALL (leaving)) OVER w
                 <= min(c.capacity) FILTER (WHERE c.seq <> ALL (leaving)) OVER w AS holds
        FROM contender c WHERE c.space = sp AND c.name = n AND c.seq >= low WINDOW w AS (ORDER BY c.seq)) y
      JOIN session x ON x.id = y.session
      WHERE y.holds AND NOT y.held AND NOT y.leaves AND NOT x.over AND x.channel <> ''
    LOOP PERFORM pg_notify(h.channel, CASE WHEN stays THEN '?' ELSE '' END || h.seq); END LOOP;
  END IF;
  DELETE FROM contender c
    WHERE c.space = sp AND c.name = n AND c.seq >= low AND c.seq = ANY (leaving) AND NOT (stays AND c.seq = leaver);
END $$;

-- Finds the contender of this owner, or puts one. low: nothing of this name below it lives, an earlier answer said so.
-- A refused try writes nothing. The one that is behind others is told of the first of them.
CREATE FUNCTION acquire(s bigint, ep int, n bytea, o bytea, w int, k int, waits boolean, low bigint, tell boolean,
                        lab text, meta text,
                        OUT granted boolean, OUT seq bigint, OUT look_in double precision, OUT first bigint,
                        OUT head_label text, OUT head_number bigint, OUT head_weight int, OUT head_capacity int,
                        OUT head_ttl double precision, OUT head_metadata text)
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE x session; load bigint; cap int; dead boolean; first_end timestamptz; last_end timestamptz; fits boolean;
        again boolean := false;
BEGIN
  -- An entry that only queues commits without a flush. Its owner calls flushed() and holds only when that was answered.
  PERFORM set_config('synchronous_commit', 'off', true);
  low := begun(s, low);
  x := living(s);
  PERFORM enter(x.space, n);
  PERFORM pg_advisory_xact_lock_shared(1818585185, (s & 2147483647)::int);
  x := living(s);
  IF x.epoch <> ep THEN RAISE EXCEPTION 'sent on an older connection' USING ERRCODE = 'LH004'; END IF;
  LOOP
    SELECT sum(c.weight::bigint), min(c.capacity), min(c.seq),
           max(c.seq) FILTER (WHERE c.session = s AND c.owner = o AND NOT c.gone),
           coalesce(bool_or(c.gone OR y.over IS NOT FALSE OR y.expires_at <= clock_timestamp()), false)
      INTO load, cap, first, acquire.seq, dead
      FROM contender c LEFT JOIN session y ON y.id = c.session WHERE c.space = x.space AND c.name = n AND c.seq >= low;
    EXIT WHEN again OR NOT dead;
    PERFORM settle(x.space, n, low, NULL, tell); again := true;
  END LOOP;
  IF acquire.seq IS NULL THEN
    granted := load IS NULL AND w <= k OR load + w <= least(cap, k);
    IF granted THEN PERFORM durably(); END IF;
    IF granted OR waits THEN
      acquire.seq := next_number();
      INSERT INTO contender VALUES (x.space, n, acquire.seq, s, o, w, k, false, NULL, lab, meta);
    END IF;
    IF granted THEN first := coalesce(first, acquire.seq); RETURN; END IF;
  END IF;
  SELECT c.label, c.seq + y.base, c.weight, c.capacity, extract(epoch FROM y.ttl), c.metadata
    INTO head_label, head_number, head_weight, head_capacity, head_ttl, head_metadata
    FROM contender c JOIN session y ON y.id = c.session WHERE c.space = x.space AND c.name = n AND c.seq >= low
    ORDER BY c.seq LIMIT 1;
  IF acquire.seq IS NULL THEN RETURN; END IF;
  SELECT sum(c.weight::bigint) <= min(c.capacity) INTO granted FROM contender c
    WHERE c.space = x.space AND c.name = n AND c.seq BETWEEN low AND acquire.seq;
  IF granted THEN PERFORM durably(); PERFORM pg_logical_emit_message(true, 'leasehold', ''); RETURN; END IF;
  -- The first that waits looks when a lease before it ends, and soon if one has ended and a transaction keeps its entry; each
  -- other one when its neighbour's lease ends.
  SELECT min(CASE WHEN c.gone OR y.over IS NOT FALSE THEN '-infinity' ELSE y.expires_at END),
         (array_agg(y.expires_at ORDER BY c.seq DESC))[1], sum(c.weight::bigint) <= min(c.capacity)
    INTO first_end, last_end, fits FROM contender c LEFT JOIN session y ON y.id = c.session
    WHERE c.space = x.space AND c.name = n AND c.seq >= low AND c.seq < acquire.seq;
  look_in := CASE WHEN fits AND first_end <= clock_timestamp() THEN 0.05
    ELSE greatest(0.05, coalesce(extract(epoch FROM (CASE WHEN fits THEN first_end ELSE last_end END) - clock_timestamp()), 0))
    END;
END $$;

-- What this connection committed before is on the disk when this is answered. It waits under no lock.
CREATE FUNCTION flushed() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  PERFORM begun(); PERFORM durably();
  PERFORM pg_logical_emit_message(true, 'leasehold', '');
END $$;

-- Removes a contender, holding or waiting. A crash of the server may bring it back unless durable: see mine.
CREATE FUNCTION release(s bigint, n bytea, q bigint, low bigint, durable boolean, tell boolean, OUT was_there boolean)
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE sp int; others bigint;
BEGIN
  IF durable THEN PERFORM durably(); ELSE PERFORM set_config('synchronous_commit', 'off', true); END IF;
  low := begun(s, low);
  SELECT y.space INTO sp FROM session y WHERE y.id = s;
  IF NOT FOUND THEN was_there := false; RETURN; END IF;
  PERFORM enter(sp, n);
  SELECT coalesce(bool_or(c.seq = q AND c.session = s AND NOT c.gone), false), count(*) FILTER (WHERE c.seq <> q)
    INTO was_there, others FROM contender c WHERE c.space = sp AND c.name = n AND c.seq >= low;
  IF NOT was_there THEN RETURN; END IF;
  IF others = 0 THEN
    PERFORM FROM contender c WHERE c.space = sp AND c.name = n AND c.seq = q FOR UPDATE SKIP LOCKED;
    IF FOUND THEN DELETE FROM contender c WHERE c.space = sp AND c.name = n AND c.seq = q; RETURN; END IF;
  END IF;
  PERFORM settle(sp, n, low, q, tell);
END $$;

-- Removes whatever a request of this owner has put. On one connection it comes after that request; on a later one the epoch
-- has refused it.
CREATE FUNCTION abandon(s bigint, n bytea, o bytea, tell boolean) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  PERFORM begun(s);
  PERFORM release(s, n, c.seq, 0, true, tell) FROM contender c JOIN session x ON x.id = c.session
    WHERE x.id = s AND c.space = x.space AND c.name = n AND c.owner = o AND NOT c.gone;
END $$;

-- It also removes entries of this session that a fenced transaction kept when they were released, and has let go since.
CREATE FUNCTION renew(s bigint, OUT alive boolean, OUT asks int, OUT taken int, OUT past bigint) LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
BEGIN
  PERFORM begun(s); PERFORM durably();
  UPDATE session x SET expires_at = clock_timestamp() + x.ttl
    WHERE x.id = s AND NOT x.over AND x.expires_at > clock_timestamp();
  alive := FOUND;
  SELECT count(*) INTO renew.taken FROM taken t WHERE t.session = s;
  SELECT count(*) INTO asks FROM contender c WHERE c.session = s AND c.asked IS NOT NULL;
  renew.past := past();
  DELETE FROM contender c WHERE c.ctid IN (
    SELECT d.ctid FROM contender d WHERE d.session = s AND d.gone LIMIT 100 FOR UPDATE SKIP LOCKED);
END $$;

-- The entries of a session, and the grace of a requested release: what messages have told, or should have.
CREATE FUNCTION standing(s bigint) RETURNS TABLE (seq bigint, grace_ms bigint) LANGUAGE sql STABLE SECURITY DEFINER AS $$
  SELECT c.seq, (extract(epoch FROM c.asked) * 1000)::bigint FROM contender c
  WHERE c.session = s AND c.session > 0 AND NOT c.gone
$$;

-- The space of a prefix. A record of a move is written under this lock taken exclusively, so a session that opens is counted
-- by it or reads it.
CREATE FUNCTION space_of(p text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE sp int;
BEGIN
  SELECT y.id INTO sp FROM space y WHERE y.prefix = p;
  IF NOT FOUND THEN
    INSERT INTO space (prefix) VALUES (p) ON CONFLICT DO NOTHING;
    SELECT y.id INTO sp FROM space y WHERE y.prefix = p;
  END IF;
  RETURN sp;
END $$;

CREATE FUNCTION open_session(p text, channel text, ttl_ms bigint, lock_ms int, moves boolean,
                             OUT id bigint, OUT base bigint, OUT record bytea, OUT past bigint) LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_variable
DECLARE sp int; ttl interval := ttl_ms * interval '1 millisecond'; old bigint[];
BEGIN
  PERFORM begun(); PERFORM new_era();
  PERFORM durably();
  past := past();
  sp := space_of(p);
  PERFORM pg_advisory_xact_lock_shared(1818585186, sp);
  SELECT CASE WHEN moves THEN 0 ELSE y.token_base END, y.record INTO base, record FROM space y WHERE y.id = sp;
  -- Drawn at random, 60 bits: after a restore a number that is counted up would be that of another client's session.
  id := ('x' || left(translate(gen_random_uuid()::text, '-', ''), 12)
             || left(translate(gen_random_uuid()::text, '-', ''), 3))::bit(60)::bigint;
  INSERT INTO session AS x (id, space, channel, base, moves, ttl, lock_ms, expires_at)
    VALUES (id, sp, channel, base, moves, ttl, lock_ms, clock_timestamp() + ttl);
  -- Without the locks of names: the removal of the dead only lets more in. A session stays until its last entry is removed.
  SELECT array_agg(y.id) INTO old FROM (
    SELECT x.id FROM session x WHERE x.space = sp AND x.over AND x.expires_at < clock_timestamp() - interval '1 day'
    ORDER BY x.id LIMIT 100 FOR UPDATE SKIP LOCKED) y;
  DELETE FROM contender c WHERE c.ctid IN (
    SELECT d.ctid FROM contender d WHERE d.session > 0 AND d.session = ANY (old) FOR UPDATE SKIP LOCKED);
  DELETE FROM member m WHERE m.space = sp AND m.session = ANY (old);
  DELETE FROM taken t WHERE t.session = ANY (old);
  DELETE FROM session x WHERE x.id = ANY (old) AND NOT EXISTS (SELECT FROM contender c WHERE c.session > 0 AND c.session = x.id);
  UPDATE session x SET over = true WHERE x.id IN (
    SELECT y.id FROM session y WHERE y.space = sp AND NOT y.over AND y.expires_at < clock_timestamp() - interval '1 day'
    ORDER BY y.id LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED);
END $$;

-- First on every new connection: it refuses from here on what was sent on an older one, and tells what the server has of us.
-- It waits for an acquire that is under way, which has the lock of the session shared.
CREATE FUNCTION mine(s bigint, OUT epoch int, OUT names bytea[], OUT seqs bigint[], OUT past bigint) LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
BEGIN
  PERFORM begun(s); PERFORM new_era();
  PERFORM pg_advisory_xact_lock(1818585185, (s & 2147483647)::int);
  PERFORM durably();
  mine.past := past();
  UPDATE session x SET epoch = x.epoch + 1, expires_at = clock_timestamp() + x.ttl
    WHERE x.id = s AND NOT x.over AND x.expires_at > clock_timestamp() RETURNING x.epoch INTO mine.epoch;
  IF NOT FOUND THEN RAISE EXCEPTION 'session is over' USING ERRCODE = 'LH001'; END IF;
  SELECT array_agg(c.name), array_agg(c.seq) INTO names, seqs
    FROM contender c WHERE c.session = s AND c.session > 0 AND NOT c.gone;
END $$;

-- Ends a session; its entries, which the client then releases one by one, so that those behind them are told.
CREATE FUNCTION end_session(s bigint, OUT names bytea[], OUT seqs bigint[]) LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  PERFORM begun(s); PERFORM durably();
  PERFORM pg_advisory_xact_lock(1818585185, (s & 2147483647)::int);
  UPDATE session x SET over = true WHERE x.id = s;
  SELECT array_agg(c.name), array_agg(c.seq) INTO names, seqs
    FROM contender c WHERE c.session = s AND c.session > 0 AND NOT c.gone;
END $$;

-- The entries that are neither dead nor gone, of one name or of every one that begins so.
CREATE FUNCTION inspect(p text, n bytea, is_prefix boolean)
RETURNS TABLE (name bytea, number bigint, weight int, capacity int, holds boolean, label text, ttl double precision, metadata text)
LANGUAGE sql VOLATILE SECURITY DEFINER AS $$
  SELECT c.name, c.seq + x.base, c.weight, c.capacity,
         sum(c.weight::bigint) OVER w <= min(c.capacity) OVER w, c.label, extract(epoch FROM x.ttl)::double precision, c.metadata
  FROM space s JOIN contender c ON c.space = s.id JOIN session x ON x.id = c.session
  WHERE s.prefix = p AND NOT c.gone AND NOT x.over AND x.expires_at > clock_timestamp()
    AND c.name >= n AND CASE WHEN is_prefix THEN substring(c.name FROM 1 FOR octet_length(n)) = n ELSE c.name = n END
  WINDOW w AS (PARTITION BY c.name ORDER BY c.seq) ORDER BY c.name, c.seq
$$;

-- Asks the holders to release, or removes them at once; returns them. A forced removal is durable: its victim does not know.
CREATE FUNCTION revoke(p text, n bytea, grace_ms bigint, force boolean, tell boolean)
RETURNS TABLE (name bytea, number bigint, weight int, capacity int, holds boolean, label text, ttl double precision, metadata text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE sp int; h record; span interval := grace_ms * interval '1 millisecond';
BEGIN
  PERFORM begun();
  SELECT s.id INTO sp FROM space s WHERE s.prefix = p;
  IF NOT FOUND THEN RETURN; END IF;
  PERFORM enter(sp, n);
  PERFORM durably();
  -- A fenced transaction may keep a holder that has left: those behind it wait.
  PERFORM settle(sp, n, 0, NULL, tell);
  FOR h IN
    SELECT i.*, x.channel, x.id AS session, c.seq FROM inspect(p, n, false) i
      JOIN contender c ON c.space = sp AND c.name = n JOIN session x ON x.id = c.session
      WHERE c.seq + x.base = i.number AND NOT c.gone AND (SELECT sum(d.weight::bigint) <= min(d.capacity)
        FROM contender d WHERE d.space = sp AND d.name = n AND d.seq <= c.seq) ORDER BY c.seq
  LOOP
    IF force THEN
      PERFORM settle(sp, n, 0, h.seq, tell);
      INSERT INTO taken VALUES (h.session, h.seq);
    ELSE
      -- The row of a fenced transaction can be updated: this is no key.
      UPDATE contender c SET asked = least(c.asked, span) WHERE c.space = sp AND c.name = n AND c.seq = h.seq;
    END IF;
    IF tell AND h.channel <> '' THEN
      PERFORM pg_notify(h.channel, CASE WHEN force THEN 'lost ' || h.seq ELSE 'asked ' || h.seq || ' ' || grace_ms END);
    END IF;
    RETURN QUERY SELECT h.name, h.number, h.weight, h.capacity, h.holds, h.label, h.ttl, h.metadata;
  END LOOP;
END $$;

CREATE FUNCTION read_record(p text) RETURNS TABLE (version bigint, value bytea) LANGUAGE sql STABLE SECURITY DEFINER AS $$
  SELECT s.record_version, s.record FROM space s WHERE s.prefix = p AND s.record IS NOT NULL
$$;

-- The new version; none if another than the expected one is in force.
CREATE FUNCTION write_record(p text, expected bigint, value bytea) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE sp int; v bigint;
BEGIN
  PERFORM begun(); PERFORM durably();
  PERFORM new_era();
  sp := space_of(p);
  PERFORM pg_advisory_xact_lock(1818585186, sp);
  UPDATE space s SET record = value, record_version = next_number()
    WHERE s.id = sp AND s.record_version IS NOT DISTINCT FROM expected RETURNING s.record_version INTO v;
  RETURN v;
END $$;

CREATE FUNCTION sign(s bigint, o bytea, v bytea) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
  SELECT begun(s); SELECT durably();
  INSERT INTO member SELECT x.space, o, s, v FROM living(s) x ON CONFLICT (space, owner) DO UPDATE SET session = s, value = v;
$$;

CREATE FUNCTION unsign(p text, o bytea) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
  SELECT begun(); SELECT durably();
  DELETE FROM member m USING space s WHERE s.prefix = p AND m.space = s.id AND m.owner = o;
$$;

CREATE FUNCTION members(p text) RETURNS TABLE (owner bytea, value bytea) LANGUAGE sql SECURITY DEFINER AS $$
  SELECT begun();
  SELECT m.owner, m.value FROM space s JOIN member m ON m.space = s.id JOIN session x ON x.id = m.session
  WHERE s.prefix = p AND NOT x.over AND x.expires_at > clock_timestamp() LIMIT 10001;
$$;

-- The base, a lower bound of later numbers, and how many other sessions of this space add the base.
CREATE FUNCTION token_base(p text, own bigint, OUT base bigint, OUT floor bigint, OUT sessions bigint)
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE sp int;
BEGIN
  PERFORM begun(); PERFORM new_era();
  sp := space_of(p);
  SELECT s.token_base INTO base FROM space s WHERE s.id = sp;
  floor := next_number();
  SELECT count(*) INTO sessions FROM session x
    WHERE x.space = sp AND x.id <> own AND NOT x.moves AND NOT x.over AND x.expires_at > clock_timestamp();
END $$;

CREATE FUNCTION raise_token_base(p text, at_least bigint) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
  SELECT begun(); SELECT durably();
  INSERT INTO space AS s (prefix, token_base) VALUES (p, at_least)
    ON CONFLICT (prefix) DO UPDATE SET token_base = greatest(s.token_base, at_least);
$$;

-- In the user's transaction: nobody else can hold the lock until it ends. It waits for nobody and holds up no renewal.
CREATE FUNCTION fence(prefix text, name text, token bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE ok boolean; sp int; q bigint; t interval; n bytea := convert_to(fence.name, 'UTF8');
        idle interval := current_setting('idle_in_transaction_session_timeout')::interval;
BEGIN
  SELECT y.id INTO sp FROM space y WHERE y.prefix = fence.prefix;
  SELECT c.seq, x.ttl INTO q, t FROM contender c JOIN session x ON x.id = c.session
    WHERE c.space = sp AND c.name = n AND c.seq = (fence.token >> 10) - x.base AND NOT c.gone AND NOT x.over
      AND x.expires_at > clock_timestamp()
    FOR KEY SHARE OF c;
  IF FOUND THEN
    SELECT sum(c.weight::bigint) <= min(c.capacity) INTO ok FROM contender c
      WHERE c.space = sp AND c.name = n AND c.seq <= q;
  END IF;
  IF ok IS NOT TRUE THEN
    RAISE EXCEPTION 'the lock % is not held with token %', fence.name, fence.token USING ERRCODE = 'LH002';
  END IF;
  IF idle = '0' OR idle > t THEN
    PERFORM set_config('idle_in_transaction_session_timeout', (extract(epoch FROM t) * 1000)::bigint::text, true);
  END IF;
END $$;

INSERT INTO uncrashed DEFAULT VALUES;
-- What a function runs with, whoever calls it. A plan that was made while the tables were empty stays with a connection: it has to
-- be one by index. A transaction of a user waits for a lock as long as its own setting says.
DO $$ DECLARE f regprocedure; n bigint := greatest(0, extract(epoch FROM now()) - 1767225600) * 262144; BEGIN
  PERFORM setval('counter', (n & 549755813887) + 1);
  INSERT INTO origin SELECT true, 1, greatest(1, timeline()) + (n >> 39)::int, 0, timeline(), p.system_identifier,
    'counter'::regclass::oid FROM pg_control_system() p;
  FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace AND p.prosecdef LOOP
    EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, @schema@, pg_temp SET jit = off SET enable_seqscan = off
      SET enable_bitmapscan = off SET enable_mergejoin = off SET enable_hashjoin = off SET plan_cache_mode = force_generic_plan
      SET lock_timeout = ''1s''', f);
  END LOOP;
END $$;
ALTER FUNCTION fence RESET lock_timeout;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA @schema@ FROM PUBLIC;
