-- name: move_due
-- Move scheduled messages that are due into the log, in (due, id) order. One mover at a time: two would reverse a key.
WITH mine AS MATERIALIZED (SELECT name FROM {schema}.chore WHERE name = 'scheduled' FOR UPDATE SKIP LOCKED),
first AS MATERIALIZED (
  SELECT due, id FROM {schema}.scheduled WHERE due <= now() AND EXISTS (SELECT FROM mine) ORDER BY due, id LIMIT $1
),
gone AS (
  DELETE FROM {schema}.scheduled s USING first f WHERE s.due = f.due AND s.id = f.id RETURNING s.*
),
moved AS (
  INSERT INTO {schema}.message
    (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, encoding, headers)
  SELECT message_id, key, aggregate, type, payload, topic, version, sequence, content_type, encoding, headers
  FROM (SELECT * FROM gone ORDER BY due, id) g
  RETURNING 1
)
SELECT count(*) FROM moved;

-- name: judge_value
-- The last id drawn. Read before the lock below draws this transaction's own id, `mark`: whoever draws an id up to
-- here had its transaction id before that, and once every transaction up to `mark` has ended these ids are final.
SELECT last_value FROM {schema}.message_id_seq;

-- name: judge_begin
-- The marks of the chore, for whoever gets its row; whether the ids up to `value` are final.
SELECT judged, value, value IS NOT NULL AND mark < pg_snapshot_xmin(pg_current_snapshot())
FROM {schema}.chore WHERE name = 'unrouted' FOR UPDATE SKIP LOCKED;

-- name: judge_page
-- The next messages in the order of their ids, as a source yields them, but for payloads.
SELECT m.id, m.lane, m.key, NULL::bytea, m.aggregate, m.type, NULL::bytea,
       CASE WHEN m.topic IS NOT NULL OR m.headers IS NOT NULL
            THEN json_build_object('topic', m.topic, 'headers', m.headers)::text END
FROM generate_series(0, (SELECT lanes - 1 FROM {schema}.installation)) AS n
CROSS JOIN LATERAL (
  SELECT l.id, l.lane, l.key, l.aggregate, l.type, l.topic, l.headers FROM {schema}.message l
  WHERE l.lane = n::int2 AND l.id > $1 AND l.id <= $2 ORDER BY l.lane, l.id LIMIT $3) m
ORDER BY m.id LIMIT $3;

-- name: judge_bury
-- A dead row for each message that no route wants.
INSERT INTO {schema}.hold (route, lane, key, ids, state, error)
SELECT 'unrouted', u.lane, u.key, ARRAY[u.id], 'dead', 'unrouted: no stored route matches it'
FROM unnest($1::int8[], $2::int2[], $3::text[]) WITH ORDINALITY AS u(id, lane, key, n) ORDER BY u.n;

-- name: judge_end
-- How far the chore has come, and the value whose finality it waits for next.
UPDATE {schema}.chore SET judged = $1, value = $2, mark = CASE WHEN $2 = value THEN mark ELSE pg_current_xact_id() END
WHERE name = 'unrouted';

-- name: routes_stored
-- What every relay executes.
SELECT name, definition::text FROM {schema}.route;
