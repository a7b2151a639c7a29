-- name: routes_fence
-- Storing a route and letting a segment go happen one after the other, each with a snapshot taken after this.
SELECT pg_advisory_xact_lock(hashtextextended('pillarbox routes {schema}', 0));

-- name: routes_any
-- Whether any route is stored.
SELECT name FROM {schema}.route LIMIT 1;

-- name: route_stored
-- A new route; no row: the name is taken.
INSERT INTO {schema}.route (name, definition, start) VALUES ($1, $2::json, $3) ON CONFLICT DO NOTHING RETURNING 1;

-- name: lanes_stored
-- Its cursors. In one statement: who is not in this snapshot and has drawn an id already is late, and is delivered.
-- From the beginning: behind what is being dropped. Terms go on where a removed route of this name stopped, so that
-- nothing of its relays, still on its way, can meet a term of its own.
INSERT INTO {schema}.lane (route, lane, cursor, term)
SELECT $1, n, json_build_object('last', b.last, 'seen', pg_current_snapshot()::text, 'due', NULL, 'at', 0), b.term
FROM (SELECT CASE WHEN $2 = 'now' THEN (SELECT last_value FROM {schema}.message_id_seq)
                  ELSE coalesce((SELECT (max(s.n) + 1) * 10000000000 FROM {schema}.segment s
                                 WHERE s.state = 'dropping'), 0) END AS last,
             coalesce((SELECT max((a.detail ->> 'term')::int8) FROM {schema}.audit a
                       WHERE a.action = 'route remove' AND a.detail ->> 'route' = $1), -1) + 1 AS term) b,
     generate_series(0, (SELECT lanes - 1 FROM {schema}.installation)) AS n
RETURNING (cursor ->> 'last')::int8, cursor ->> 'seen';

-- name: route_defined
-- What every relay executes from its next empty window on.
UPDATE {schema}.route SET definition = $2::json WHERE name = $1 RETURNING 1;

-- name: route_state
-- Pause or resume.
UPDATE {schema}.route SET state = $2 WHERE name = $1 RETURNING 1;

-- name: route_named
-- Whether this route is stored.
SELECT name FROM {schema}.route WHERE name = $1;

-- name: route_renamed
-- Its lanes follow by the foreign key.
UPDATE {schema}.route SET name = $2 WHERE name = $1 RETURNING 1;

-- name: lanes_let_go
-- Nobody owns these lanes any more, and what is on its way to them changes nothing; the highest term.
WITH freed AS (UPDATE {schema}.lane SET owner = NULL, term = term + 1 WHERE route = $1 RETURNING term)
SELECT max(term) FROM freed;

-- name: holds_renamed
-- Hold rows go with their route.
UPDATE {schema}.hold SET route = $2, edition = edition + 1 WHERE route = $1;

-- name: route_removed
-- Its lanes go by the foreign key.
DELETE FROM {schema}.route WHERE name = $1 RETURNING 1;

-- name: holds_removed
-- What waited goes with its route; the ids that were not delivered.
WITH gone AS (DELETE FROM {schema}.hold WHERE route = $1 RETURNING ids, state)
SELECT id FROM gone, unnest(ids) AS id WHERE state IN ('retry', 'waiting', 'blocked', 'dead') ORDER BY id;

-- name: route_unread
-- How many messages lie above the cursors of a route, or have come late below them; the lowest cursor.
SELECT coalesce(sum(fresh.n + late.n), 0)::int8, min((l.cursor ->> 'last')::int8)
FROM {schema}.lane l
CROSS JOIN LATERAL (SELECT (l.cursor ->> 'last')::int8 AS last, (l.cursor ->> 'seen')::pg_snapshot AS seen,
                           (l.cursor ->> 'due')::pg_snapshot AS due, (l.cursor ->> 'at')::int8 AS at) c
CROSS JOIN LATERAL (SELECT count(*) AS n FROM {schema}.message m WHERE m.lane = l.lane AND m.id > c.last) fresh
CROSS JOIN LATERAL (
  SELECT count(*) AS n FROM {schema}.message m
  WHERE m.xid >= pg_snapshot_xmin(c.seen) AND m.id <= c.last AND m.lane = l.lane
    AND NOT pg_visible_in_snapshot(m.xid, c.seen)
    AND NOT (c.due IS NOT NULL AND m.id <= c.at AND pg_visible_in_snapshot(m.xid, c.due))) late
WHERE l.route = $1;

-- name: unrouted_in_log
-- Dead rows of messages that no route wanted and that the log still has, page by page; rows as a source yields them.
SELECT h.seq, m.id, m.lane, m.key, uuid_send(m.message_id), m.aggregate, m.type, ''::bytea,
       json_build_object('topic', m.topic, 'headers', m.headers)::text
FROM (SELECT seq, id, lane FROM {schema}.hold WHERE route = 'unrouted' AND state = 'dead' AND seq > $1
      ORDER BY seq LIMIT $2) h
JOIN {schema}.message m ON m.lane = h.lane AND m.id = h.id
ORDER BY h.seq;

-- name: not_judged_yet
-- The next messages that a route from now on will not read and that the chore `unrouted` has not come to.
SELECT m.id, m.lane, m.key, NULL::bytea, m.aggregate, m.type, NULL::bytea,
       CASE WHEN m.topic IS NOT NULL OR m.headers IS NOT NULL
            THEN json_build_object('topic', m.topic, 'headers', m.headers)::text END
FROM generate_series(0, (SELECT lanes - 1 FROM {schema}.installation)) AS n
CROSS JOIN LATERAL (
  SELECT l.id, l.lane, l.key, l.aggregate, l.type, l.topic, l.headers FROM {schema}.message l
  WHERE l.lane = n::int2 AND l.id <= $2 AND pg_visible_in_snapshot(l.xid, $3::pg_snapshot)
    AND l.id > greatest($1::int8, (SELECT judged FROM {schema}.chore WHERE name = 'unrouted'))
  ORDER BY l.lane, l.id LIMIT $4) m
ORDER BY m.id LIMIT $4;

-- name: unrouted_resolved
-- A route from the beginning reads them itself.
UPDATE {schema}.hold SET state = 'resolved', edition = edition + 1, changed_at = now()
WHERE seq = ANY ($1::int8[]) AND state = 'dead';

-- name: audited
-- Who did what, where and why.
INSERT INTO {schema}.audit (who, host, action, why, detail) VALUES ($1, $2, $3, $4, $5::json);

-- name: in_log
-- How many messages a new route from the beginning would read; nobody waits for a count of more than a million.
SELECT count(*) FROM (SELECT FROM {schema}.message LIMIT 1000001) m;
