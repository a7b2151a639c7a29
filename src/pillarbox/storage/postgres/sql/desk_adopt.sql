-- name: adopt_still
-- Nobody adds meanwhile: transactions that did are waited for, those to come wait for us.
LOCK TABLE {schema}.message IN SHARE MODE;

-- name: adopt_roll_lock
-- No roll at the same time.
SELECT pg_advisory_xact_lock(hashtextextended('pillarbox roll {schema}', 0));

-- name: adopt_ahead_of_cluster
-- Routes whose cursors know of transactions that this cluster has not begun yet.
SELECT DISTINCT l.route FROM {schema}.lane l
WHERE pg_snapshot_xmax((l.cursor->>'seen')::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) ORDER BY l.route;

-- name: adopt_identity
-- This cluster and this environment are the installation's own from now on; no relay owns anything.
WITH lanes AS (UPDATE {schema}.lane SET owner = NULL, term = term + 1)
UPDATE {schema}.installation SET environment = $1::text,
  system_identifier = (SELECT system_identifier::text FROM pg_control_system());

-- name: adopt_cursors
-- Where the cursors of every route stand.
SELECT l.route, r.definition, l.lane, (l.cursor->>'last')::bigint FROM {schema}.lane l
JOIN {schema}.route r ON r.name = l.route ORDER BY l.route, l.lane;

-- name: adopt_unread
-- Rows at or below the cursors that they had not read, by arithmetic on their own values: foreign ids of transactions.
SELECT l.route, m.id, m.lane, m.key, m.message_id, m.aggregate, m.type, m.topic, m.headers
FROM {schema}.lane l
CROSS JOIN LATERAL (SELECT (l.cursor->>'last')::bigint AS last, (l.cursor->>'seen')::pg_snapshot AS seen,
  (l.cursor->>'due')::pg_snapshot AS due, coalesce((l.cursor->>'at')::bigint, 0) AS at) c
JOIN {schema}.message m ON m.lane = l.lane AND m.id <= c.last AND m.xid >= pg_snapshot_xmin(c.seen)
  AND NOT pg_visible_in_snapshot(m.xid, c.seen)
WHERE NOT (c.due IS NOT NULL AND m.id <= least(c.at, c.last) AND pg_visible_in_snapshot(m.xid, c.due))
  AND NOT EXISTS (SELECT FROM {schema}.hold h WHERE h.route = l.route AND h.id = m.id)
ORDER BY l.route, m.id;

-- name: adopt_beyond
-- How many messages each route has not read beyond its cursors.
SELECT l.route, sum(p.n)::bigint FROM {schema}.lane l CROSS JOIN LATERAL (
  SELECT count(*) AS n FROM {schema}.message m WHERE m.lane = l.lane AND m.id > (l.cursor->>'last')::bigint) p
GROUP BY l.route ORDER BY l.route;

-- name: adopt_hold
-- What was unread below a cursor goes on from `hold`, a run a key.
INSERT INTO {schema}.hold (route, lane, ids, key, state, next_attempt_at, error)
SELECT w.route, w.lane, w.ids::bigint[], w.key, 'retry', now(), 'unread when this database was adopted'
FROM unnest($1::text[], $2::int2[], $3::text[], $4::text[]) WITH ORDINALITY w(route, lane, ids, key, n) ORDER BY w.n;

-- name: adopt_range
-- The next range that is attached and unused.
SELECT min(s.n) FROM {schema}.segment s WHERE s.state = 'ahead'
  AND s.n > (SELECT max(o.n) FROM {schema}.segment o WHERE o.state <> 'ahead');

-- name: adopt_setval
-- Ids go on in that range; only ever upwards.
SELECT setval('{schema}.message_id_seq', $1::bigint * 10000000000 + 1, false)
WHERE (SELECT last_value FROM {schema}.message_id_seq) < $1::bigint * 10000000000;

-- name: adopt_close
-- Nothing is late in the ranges before it, ever again.
UPDATE {schema}.segment SET state = CASE WHEN n = $1::bigint THEN 'open' WHEN state = 'open' THEN 'closed' ELSE state END,
  closed_by = CASE WHEN n < $1::bigint THEN '3'::xid8 END, lockers = '{}',
  closed_at = CASE WHEN n < $1::bigint THEN coalesce(closed_at, now()) END,
  opened_at = CASE WHEN n = $1::bigint THEN now() ELSE opened_at END
WHERE n <= $1::bigint;

-- name: adopt_seen
-- The cursors stand where they stood, in a snapshot of this cluster.
UPDATE {schema}.lane SET cursor = json_build_object('last', (cursor->>'last')::bigint, 'seen', pg_current_snapshot()::text,
  'due', NULL, 'at', 0);

-- name: adopt_skip_held
-- What is held is not delivered any more.
UPDATE {schema}.hold SET state = 'skipped', next_attempt_at = NULL, edition = edition + 1, changed_at = now()
WHERE state IN ('retry', 'waiting', 'blocked') RETURNING cardinality(ids);

-- name: adopt_now
-- The cursors stand behind everything.
UPDATE {schema}.lane SET cursor = json_build_object('last', $1::bigint * 10000000000 - 1, 'seen', pg_current_snapshot()::text,
  'due', NULL, 'at', 0);
