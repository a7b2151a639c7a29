-- name: upkeep_lock
-- One at a time keeps the segments; it holds this while its direct connection lives.
SELECT pg_try_advisory_lock(hashtextextended('pillarbox upkeep {schema}', 0));

-- name: upkeep_unlock
-- Let others do it.
SELECT pg_advisory_unlock(hashtextextended('pillarbox upkeep {schema}', 0));

-- name: upkeep_owner
-- Who owns the log, and whether this session acts as them: ATTACH, DETACH and DROP need it.
SELECT pg_get_userbyid(relowner), pg_has_role(relowner, 'USAGE') FROM pg_class
WHERE oid = '{schema}.message'::regclass;

-- name: segments
-- What is attached (and whether its detach is pending), what lies beside it, what is noted; and the open one's number.
-- A crash behind a drop leaves a range that is only noted.
SELECT coalesce(c.n, s.n), c.attached, coalesce(c.pending, false), s.state,
  (SELECT last_value / 10000000000 FROM {schema}.message_id_seq), c.n IS NOT NULL
FROM (
  SELECT substr(t.relname, 9)::int8 AS n, i.inhrelid IS NOT NULL AS attached, i.inhdetachpending AS pending
  FROM pg_class t LEFT JOIN pg_inherits i ON i.inhrelid = t.oid AND i.inhparent = '{schema}.message'::regclass
  WHERE t.relnamespace = to_regnamespace('{schema}') AND t.relkind = 'r' AND t.relname ~ '^message_[0-9]+$') c
FULL JOIN {schema}.segment s ON s.n = c.n
ORDER BY 1;

-- name: segment_made
-- {n} is the range's number, {first} its first id, {end} the next range's.
CREATE TABLE {schema}.message_{n} (LIKE {schema}.message INCLUDING ALL);

-- name: segment_checked
-- So that the attach need not read it.
ALTER TABLE {schema}.message_{n} ADD CHECK (id >= {first} AND id < {end});

-- name: segment_attached
-- `PARTITION OF` would wait behind every open producer; this does not.
ALTER TABLE {schema}.message ATTACH PARTITION {schema}.message_{n} FOR VALUES FROM ({first}) TO ({end});

-- name: segment_detached
-- A DROP that waits would make every producer wait behind it.
ALTER TABLE {schema}.message DETACH PARTITION {schema}.message_{n} CONCURRENTLY;

-- name: segment_detach_finished
-- What a crash, or a producer in the way, left pending.
ALTER TABLE {schema}.message DETACH PARTITION {schema}.message_{n} FINALIZE;

-- name: segment_dropped
-- Detached, or made and never attached.
DROP TABLE {schema}.message_{n};

-- name: segment_noted
-- In a transaction after the attach: who holds a lock on the log now may have planned without this range, and would
-- fail in it. Prepared transactions insert nothing any more.
INSERT INTO {schema}.segment (n, state, lockers)
SELECT $1, 'ahead', (
  SELECT coalesce(array_agg(DISTINCT l.virtualtransaction), '{}') FROM pg_locks l
  WHERE l.locktype = 'relation' AND l.relation = '{schema}.message'::regclass
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.pid IS NOT NULL AND l.pid <> pg_backend_pid());

-- name: roll_lock
-- Draws no transaction id; a row lock would, and `closed_by` would be too early.
SELECT pg_advisory_xact_lock(hashtextextended('pillarbox roll {schema}', 0));

-- name: roll_due
-- The open range if its time or its number of rows is over, anything was drawn in it, the next one is there, and
-- nobody is left who could not insert into that.
SELECT cur.n FROM (
  SELECT last_value, is_called, last_value / 10000000000 AS n FROM {schema}.message_id_seq) cur
JOIN {schema}.segment o ON o.n = cur.n
JOIN {schema}.segment a ON a.n = cur.n + 1 AND a.state = 'ahead'
WHERE cur.is_called
  AND (o.opened_at <= now() - $1::float8 * interval '1 second' OR cur.last_value - cur.n * 10000000000 >= $2::int8)
  AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'relation' AND l.relation = '{schema}.message'::regclass
                  AND l.virtualtransaction = ANY (a.lockers));

-- name: roll_ids
-- The next id lies in the next range; only ever upwards. No id is a multiple of the width, so that `id > lo` prunes.
SELECT setval('{schema}.message_id_seq'::regclass, ($1::int8 + 1) * 10000000000 + 1, false)
WHERE (SELECT last_value FROM {schema}.message_id_seq) < ($1::int8 + 1) * 10000000000;

-- name: roll_close
-- Close what lies behind the sequence, also what a crash after `setval` left open.
WITH closed AS (
  UPDATE {schema}.segment SET state = 'closed', closed_by = pg_current_xact_id(), closed_at = now()
  WHERE closed_by IS NULL AND (n + 1) * 10000000000 <= (SELECT last_value FROM {schema}.message_id_seq)
  RETURNING n
),
opened AS (
  UPDATE {schema}.segment SET state = 'open', opened_at = now()
  WHERE state = 'ahead' AND n = (SELECT last_value / 10000000000 FROM {schema}.message_id_seq)
)
SELECT n FROM closed;

-- name: roll_unfinished
-- Whether a range lies behind the sequence and is not closed; looked at without drawing a transaction id.
SELECT EXISTS (SELECT FROM {schema}.segment WHERE closed_by IS NULL
               AND (n + 1) * 10000000000 <= (SELECT last_value FROM {schema}.message_id_seq));

-- name: prune_mark
-- The oldest range, if it may go (R16): old, passed by every cursor of every route with all who could have drawn an id
-- in it ended, and judged.
UPDATE {schema}.segment s SET state = 'dropping'
WHERE s.n = (SELECT min(n) FROM {schema}.segment WHERE state <> 'dropping')
  AND s.state = 'closed' AND s.closed_at <= now() - $1::float8 * interval '1 second'
  AND EXISTS (SELECT FROM {schema}.lane)
  AND NOT EXISTS (
    SELECT FROM {schema}.lane l
    WHERE (l.cursor ->> 'last')::int8 < (s.n + 1) * 10000000000 - 1 OR l.cursor ->> 'due' IS NOT NULL
       OR NOT pg_snapshot_xmin((l.cursor ->> 'seen')::pg_snapshot) > s.closed_by)
  AND (SELECT judged FROM {schema}.chore WHERE name = 'unrouted') >= (s.n + 1) * 10000000000 - 1
RETURNING s.n;

-- name: prune_keep
-- What hold rows still point to outlives the range.
INSERT INTO {schema}.kept (id, xid, message_id, key, aggregate, type, payload, topic, version, sequence, content_type,
                           encoding, headers, created_at)
SELECT m.id, m.xid, m.message_id, m.key, m.aggregate, m.type, m.payload, m.topic, m.version, m.sequence,
       m.content_type, m.encoding, m.headers, m.created_at
FROM (SELECT DISTINCT i.id, h.lane FROM {schema}.hold h, unnest(h.ids) AS i(id)
      WHERE h.state NOT IN ('skipped', 'resolved')
        AND i.id >= $1::int8 * 10000000000 AND i.id < ($1::int8 + 1) * 10000000000) w
JOIN {schema}.message m ON m.lane = w.lane AND m.id = w.id
ON CONFLICT DO NOTHING;

-- name: prune_forget
-- The range is gone.
DELETE FROM {schema}.segment WHERE n = $1 AND state = 'dropping';

-- name: expire_unique_keys
-- Unique keys after their window.
DELETE FROM {schema}.unique_key WHERE key IN (
  SELECT key FROM {schema}.unique_key WHERE created_at <= now() - $1::float8 * interval '1 second'
  ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING 1;

-- name: expire_audit
-- Audit rows after the retention.
DELETE FROM {schema}.audit WHERE id IN (
  SELECT id FROM {schema}.audit WHERE at <= now() - $1::float8 * interval '1 second' ORDER BY id LIMIT $2)
RETURNING 1;

-- name: expire_hold
-- Skipped and resolved hold rows after the retention; not while they speak for an id above a cursor.
DELETE FROM {schema}.hold WHERE seq IN (
  SELECT seq FROM {schema}.hold
  WHERE state IN ('skipped', 'resolved') AND NOT ahead AND changed_at <= now() - $1::float8 * interval '1 second'
  ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING 1;

-- name: expire_kept
-- Kept messages that no hold row points to any more.
WITH needed AS MATERIALIZED (
  SELECT DISTINCT i.id FROM {schema}.hold h, unnest(h.ids) AS i(id) WHERE h.state NOT IN ('skipped', 'resolved')
)
DELETE FROM {schema}.kept WHERE id IN (
  SELECT k.id FROM {schema}.kept k WHERE NOT EXISTS (SELECT FROM needed n WHERE n.id = k.id) ORDER BY k.id LIMIT $1)
RETURNING 1;
