-- name: desk_installation
-- Which installation this is, and whether it still lives in the cluster that it was made for.
SELECT i.environment, i.system_identifier = (SELECT system_identifier::text FROM pg_control_system()),
  i.schema_version, i.lanes, (SELECT last_value FROM {schema}.message_id_seq)
FROM {schema}.installation i;

-- name: desk_relays
-- The processes whose lease holds.
SELECT id, host, version, serves, says, (SELECT count(*) FROM {schema}.lane l WHERE l.owner = r.id)
FROM {schema}.relay r WHERE alive_until > now() ORDER BY host, id;

-- name: desk_routes
-- Stored routes.
SELECT name, definition, state = 'paused', start FROM {schema}.route ORDER BY name;

-- name: desk_lanes
-- Each lane with what its cursor has not passed: a thousand are counted, what lies beyond is estimated.
SELECT l.route, l.lane, r.host, l.term, extract(epoch FROM now() - l.settled_at)::float8, l.cursor,
  p.n, p.top, extract(epoch FROM now() - f.created_at)::float8
FROM {schema}.lane l
LEFT JOIN {schema}.relay r ON r.id = l.owner AND r.alive_until > now()
CROSS JOIN LATERAL (SELECT (l.cursor->>'last')::bigint AS last) c
CROSS JOIN LATERAL (SELECT count(*) AS n, max(x.id) AS top FROM (
  SELECT m.id FROM {schema}.message m WHERE m.lane = l.lane AND m.id > c.last ORDER BY m.lane, m.id LIMIT 1000) x) p
LEFT JOIN LATERAL (
  SELECT m.created_at FROM {schema}.message m WHERE m.lane = l.lane AND m.id > c.last
  ORDER BY m.lane, m.id LIMIT 1) f ON true
ORDER BY l.route, l.lane;

-- name: desk_late
-- Rows below the cursors that committed after them: as the relay's read finds them, a thousand a group of lanes.
WITH lanes AS MATERIALIZED (
  SELECT l.route, l.lane, (l.cursor->>'last')::bigint AS last, l.cursor->>'seen' AS seen, l.cursor->>'due' AS due,
    coalesce((l.cursor->>'at')::bigint, 0) AS at
  FROM {schema}.lane l),
groups AS MATERIALIZED (
  SELECT route, seen::pg_snapshot AS seen, due::pg_snapshot AS due, at, max(last) AS hi,
    coalesce((SELECT max(s.n + 1) * 10000000000 - 1 FROM {schema}.segment s
      WHERE s.closed_by < pg_snapshot_xmin(seen::pg_snapshot)), 0) AS lo
  FROM lanes GROUP BY route, seen, due, at),
rows AS MATERIALIZED (
  SELECT g.route, g.seen, g.due, g.at, m.lane, m.id, m.created_at FROM groups g CROSS JOIN LATERAL (
    SELECT x.lane, x.id, x.created_at FROM pg_snapshot_xip(g.seen) o(xid) CROSS JOIN LATERAL (
      SELECT n.lane, n.id, n.created_at FROM {schema}.message n
      WHERE n.xid = o.xid AND n.id > g.lo AND n.id <= g.hi ORDER BY n.xid, n.id LIMIT 1000) x
    UNION ALL
    -- Ids at or below the cursor of transactions begun since can only be those of the first ones: a backlog is not walked.
    SELECT n.lane, n.id, n.created_at FROM (
      SELECT y.lane, y.id, y.created_at FROM {schema}.message y WHERE y.xid >= pg_snapshot_xmax(g.seen)
      ORDER BY y.xid, y.id LIMIT 2000) n WHERE n.id > g.lo AND n.id <= g.hi) m
  WHERE g.hi > g.lo)
SELECT r.route, r.lane, count(*), extract(epoch FROM now() - min(r.created_at))::float8
FROM rows r JOIN lanes l ON l.route = r.route AND l.lane = r.lane AND l.at = r.at AND r.id <= l.last
  AND l.seen = r.seen::text AND l.due IS NOT DISTINCT FROM r.due::text
WHERE r.due IS NULL OR r.id > r.at
GROUP BY r.route, r.lane;

-- name: desk_segments
-- Every range of ids with the highest one used in it, so that estimates do not count the gap behind it.
SELECT s.n, s.state, (SELECT max(t.id) FROM generate_series(0, $1::int - 1) g(lane) CROSS JOIN LATERAL (
    SELECT m.id FROM {schema}.message m WHERE m.lane = g.lane AND s.state <> 'ahead'
      AND m.id >= s.n * 10000000000 AND m.id < (s.n + 1) * 10000000000 ORDER BY m.lane DESC, m.id DESC LIMIT 1) t)
FROM {schema}.segment s ORDER BY s.n;

-- name: desk_counts
-- Rows and messages of each route in `hold` by state, at most ten thousand rows a state, and the oldest message held.
SELECT h.route, h.state, count(*), sum(cardinality(h.ids)), (array_agg(h.lane ORDER BY h.id))[1], min(h.id)
FROM unnest(ARRAY['retry', 'waiting', 'blocked', 'dead']) s(state) CROSS JOIN LATERAL (
  SELECT x.route, x.state, x.ids, x.lane, x.id FROM {schema}.hold x
  WHERE x.state >= s.state AND x.state <= s.state ORDER BY x.state, x.seq LIMIT 10000) h
GROUP BY h.route, h.state;

-- name: desk_age
-- How long ago a message was added.
SELECT extract(epoch FROM now() - m.created_at)::float8 FROM (
  SELECT m.created_at FROM {schema}.message m WHERE m.lane = $1::int2 AND m.id = $2::bigint
  UNION ALL SELECT k.created_at FROM {schema}.kept k WHERE k.id = $2::bigint) m LIMIT 1;

-- name: desk_troubles
-- The errors that are most frequent in `hold`, each with its first message.
WITH most AS MATERIALIZED (
  SELECT h.route, h.state, h.error, count(*) AS n, min(h.id) AS first, (array_agg(h.lane ORDER BY h.id))[1] AS lane
  FROM unnest(ARRAY['retry', 'blocked', 'dead']) s(state) CROSS JOIN LATERAL (
    SELECT x.route, x.state, left(x.error, 300) AS error, x.id, x.lane FROM {schema}.hold x
    WHERE x.state >= s.state AND x.state <= s.state ORDER BY x.state DESC, x.seq DESC LIMIT 10000) h
  GROUP BY h.route, h.state, h.error ORDER BY n DESC LIMIT 20)
SELECT t.route, t.state, t.error, t.n, coalesce(
  (SELECT m.message_id FROM {schema}.message m WHERE m.lane = t.lane AND m.id = t.first),
  (SELECT k.message_id FROM {schema}.kept k WHERE k.id = t.first))
FROM most t ORDER BY t.n DESC, t.route, t.error;

-- name: desk_rest
-- Scheduled messages, how late the first one is, the log's bytes.
SELECT (SELECT count(*) FROM (SELECT FROM {schema}.scheduled LIMIT 10000) x),
  (SELECT extract(epoch FROM now() - s.due)::float8 FROM {schema}.scheduled s WHERE s.due < now()
   ORDER BY s.due, s.id LIMIT 1),
  (SELECT coalesce(sum(pg_total_relation_size(i.inhrelid)), 0)::bigint FROM pg_inherits i
   WHERE i.inhparent = '{schema}.message'::regclass);

-- name: desk_transaction
-- The oldest transaction that holds retention back, as far as this role may see.
SELECT extract(epoch FROM now() - t.began)::float8, t.who FROM (
  SELECT a.xact_start AS began, concat_ws(' ', 'pid', a.pid, a.usename, nullif(a.application_name, ''),
    'on', a.datname) AS who
  FROM pg_stat_activity a WHERE a.backend_xid IS NOT NULL AND a.xact_start IS NOT NULL AND a.pid <> pg_backend_pid()
  UNION ALL
  SELECT p.prepared, concat_ws(' ', 'prepared', p.gid, p.owner, 'on', p.database) FROM pg_prepared_xacts p) t
ORDER BY t.began LIMIT 1;

-- name: desk_moved
-- Messages that cursors have passed since they were looked at.
SELECT w.route, sum(p.n)::bigint
FROM unnest($1::text[], $2::int2[], $3::bigint[]) w(route, lane, last)
JOIN {schema}.lane l ON l.route = w.route AND l.lane = w.lane
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
  SELECT FROM {schema}.message m WHERE m.lane = w.lane AND m.id > w.last AND m.id <= (l.cursor->>'last')::bigint
  ORDER BY m.lane, m.id LIMIT 100000) x) p
GROUP BY w.route;

-- name: desk_find
-- Messages by message id or by id in the log, wherever they lie.
WITH log AS MATERIALIZED (
  SELECT m.id, m.lane, m.message_id, m.key, m.aggregate, m.type, m.topic, m.headers, m.created_at
  FROM unnest($1::uuid[]) w(id) JOIN {schema}.message m ON m.message_id = w.id
  UNION ALL
  SELECT m.id, m.lane, m.message_id, m.key, m.aggregate, m.type, m.topic, m.headers, m.created_at
  FROM unnest($2::bigint[]) w(id) CROSS JOIN {schema}.installation i CROSS JOIN generate_series(0, i.lanes - 1) g(lane)
  CROSS JOIN LATERAL ( -- the limit keeps the planner from joining by (xid, id), which walks that index
    SELECT x.id, x.lane, x.message_id, x.key, x.aggregate, x.type, x.topic, x.headers, x.created_at
    FROM {schema}.message x WHERE x.lane = g.lane::int2 AND x.id = w.id ORDER BY x.lane, x.id LIMIT 1) m),
kept AS MATERIALIZED (
  SELECT k.id, k.lane, k.message_id, k.key, k.aggregate, k.type, k.topic, k.headers, k.created_at
  FROM unnest($1::uuid[]) w(id) JOIN {schema}.kept k ON k.message_id = w.id
  UNION ALL
  SELECT k.id, k.lane, k.message_id, k.key, k.aggregate, k.type, k.topic, k.headers, k.created_at
  FROM unnest($2::bigint[]) w(id) JOIN {schema}.kept k ON k.id = w.id)
SELECT 'log', l.id, l.lane, l.message_id, l.key, l.aggregate, l.type, l.topic, l.headers,
  extract(epoch FROM now() - l.created_at)::float8, NULL::float8 FROM log l
UNION ALL
SELECT 'kept', k.id, k.lane, k.message_id, k.key, k.aggregate, k.type, k.topic, k.headers,
  extract(epoch FROM now() - k.created_at)::float8, NULL FROM kept k WHERE NOT EXISTS (SELECT FROM log l WHERE l.id = k.id)
UNION ALL
SELECT 'scheduled', s.id, 0, s.message_id, s.key, s.aggregate, s.type, s.topic, s.headers,
  extract(epoch FROM now() - s.created_at)::float8, extract(epoch FROM s.due - now())::float8
FROM unnest($1::uuid[]) w(id) JOIN {schema}.scheduled s ON s.message_id = w.id;

-- name: desk_cancelled
-- Scheduled messages that an operator cancelled, and what he erased and is gone since, as the audit remembers them.
SELECT CASE a.action WHEN 'erase' THEN 'erased' ELSE 'cancelled' END, a.id, 0, w.id, e.value->>'key', e.value->>'aggregate',
  e.value->>'type', NULL, NULL::json,
  extract(epoch FROM now() - a.at)::float8, NULL::float8
FROM {schema}.audit a CROSS JOIN LATERAL json_array_elements(a.detail->'messages') e
JOIN unnest($1::uuid[]) w(id) ON w.id::text = e.value->>'id' WHERE a.action IN ('scheduled cancel', 'erase');

-- name: desk_of_key
-- What no cursor has passed yet of a key: at most a hundred thousand rows of its lane are looked at.
SELECT 'log', m.id, m.lane, m.message_id, m.key, m.aggregate, m.type, m.topic, m.headers,
  extract(epoch FROM now() - m.created_at)::float8, NULL::float8
FROM (SELECT x.* FROM {schema}.installation i
  CROSS JOIN LATERAL (SELECT (hashtextextended($1::text COLLATE "C", 0) & (i.lanes - 1))::int2 AS lane) k
  CROSS JOIN LATERAL (SELECT min((l.cursor->>'last')::bigint) AS last FROM {schema}.lane l WHERE l.lane = k.lane) c
  CROSS JOIN LATERAL (
    SELECT m.id, m.lane, m.message_id, m.key, m.aggregate, m.type, m.topic, m.headers, m.created_at
    FROM {schema}.message m WHERE m.lane = k.lane AND m.id > coalesce(c.last, 0)
    ORDER BY m.lane, m.id LIMIT 100000) x) m
WHERE m.key = $1::text AND ($2::text IS NULL OR m.aggregate = $2::text)
ORDER BY m.id LIMIT $3::int;

-- name: desk_held_of_key
-- Ids that the live or dead rows of a key hold, in the order of its queue.
SELECT u.id FROM {schema}.installation i
CROSS JOIN LATERAL (SELECT (hashtextextended($1::text COLLATE "C", 0) & (i.lanes - 1))::int2 AS lane) k
CROSS JOIN {schema}.route r
CROSS JOIN LATERAL (
  SELECT h.seq, h.ids FROM {schema}.hold h WHERE h.route = r.name AND h.lane = k.lane AND h.key = $1::text
    AND h.state IN ('retry', 'waiting', 'blocked', 'dead') ORDER BY h.seq LIMIT $2::int) h
CROSS JOIN LATERAL unnest(h.ids) WITH ORDINALITY u(id, n)
ORDER BY h.seq, u.n LIMIT $2::int;

-- name: desk_all_of_key
-- Every message of a key of an aggregate, 50,000 rows of its lane at a time: for `erase`. The last row is given to go on.
WITH page AS MATERIALIZED (
  SELECT m.id, m.key = $1::text AND m.aggregate = $2::text AS fits FROM {schema}.message m
  WHERE m.lane = (SELECT (hashtextextended($1::text COLLATE "C", 0) & (i.lanes - 1))::int2 FROM {schema}.installation i)
    AND m.id > $3::bigint ORDER BY m.lane, m.id LIMIT 50000)
SELECT p.id, coalesce(p.fits, false) FROM page p WHERE p.fits OR p.id = (SELECT max(x.id) FROM page x) ORDER BY p.id;

-- name: desk_kept_of_key
-- What retention kept of a key of an aggregate.
SELECT k.id FROM {schema}.kept k WHERE k.key = $1::text AND k.aggregate = $2::text;

-- name: desk_standings
-- For each message and route: whether its cursor has passed it, how many unread ones are before it, who owns the lane.
SELECT r.name, r.definition, r.state = 'paused', w.id,
  m.xid IS NULL OR (w.id <= c.last AND (w.id <= c.lo OR pg_visible_in_snapshot(m.xid, c.seen)))
    OR (c.due IS NOT NULL AND w.id <= least(c.at, c.last) AND pg_visible_in_snapshot(m.xid, c.due)),
  (SELECT count(*) FROM (SELECT FROM {schema}.message b WHERE b.lane = w.lane AND b.id > c.last AND b.id < w.id
    ORDER BY b.lane, b.id LIMIT 1000) x),
  p.host, l.term, extract(epoch FROM now() - l.settled_at)::float8
FROM unnest($1::bigint[], $2::int2[]) WITH ORDINALITY w(id, lane, n)
CROSS JOIN {schema}.route r
JOIN {schema}.lane l ON l.route = r.name AND l.lane = w.lane
LEFT JOIN {schema}.message m ON m.lane = w.lane AND m.id = w.id
LEFT JOIN {schema}.relay p ON p.id = l.owner AND p.alive_until > now()
CROSS JOIN LATERAL (SELECT (l.cursor->>'last')::bigint AS last, (l.cursor->>'seen')::pg_snapshot AS seen,
  (l.cursor->>'due')::pg_snapshot AS due, coalesce((l.cursor->>'at')::bigint, 0) AS at,
  coalesce((SELECT max(s.n + 1) * 10000000000 - 1 FROM {schema}.segment s
    WHERE s.closed_by < pg_snapshot_xmin((l.cursor->>'seen')::pg_snapshot)), 0) AS lo) c
ORDER BY w.n, r.name;

-- name: desk_lines_of
-- The hold rows of these messages, as their head or inside a run; in the order they were written.
SELECT h.seq, h.route, h.lane, w.id, NULL::uuid, NULL::text, NULL::text, h.key, h.generation,
  CASE WHEN h.id <> w.id THEN 'waiting' ELSE h.state END, h.attempts, h.unknowns,
  extract(epoch FROM h.next_attempt_at - now())::float8, h.error, extract(epoch FROM now() - h.held_at)::float8,
  cardinality(h.ids) - array_position(h.ids, w.id), h.edition
FROM unnest($1::bigint[], $2::int2[], $3::text[]) w(id, lane, key) CROSS JOIN LATERAL (
  SELECT x.* FROM {schema}.hold x WHERE x.id = w.id
  UNION ALL
  SELECT x.* FROM {schema}.route r JOIN {schema}.hold x ON x.route = r.name AND x.lane = w.lane AND x.key = w.key
  WHERE x.id <> w.id AND w.id = ANY (x.ids)) h
ORDER BY h.seq;

-- name: desk_heads
-- What these keys wait for: the first live row of each, with its message.
SELECT h.seq, h.route, h.lane, h.id, coalesce(m.message_id, k.message_id), coalesce(m.aggregate, k.aggregate),
  coalesce(m.type, k.type), h.key, h.generation, h.state, h.attempts, h.unknowns,
  extract(epoch FROM h.next_attempt_at - now())::float8, h.error, extract(epoch FROM now() - h.held_at)::float8,
  cardinality(h.ids) - 1, h.edition
FROM (SELECT DISTINCT w.lane, w.key FROM unnest($1::int2[], $2::text[]) w(lane, key) WHERE w.key IS NOT NULL) w
CROSS JOIN {schema}.route r
CROSS JOIN LATERAL (
  SELECT x.* FROM {schema}.hold x WHERE x.route = r.name AND x.lane = w.lane AND x.key = w.key AND x.generation = 0
    AND x.state IN ('retry', 'waiting', 'blocked') ORDER BY x.seq LIMIT 1) h
LEFT JOIN {schema}.message m ON m.lane = h.lane AND m.id = h.id
LEFT JOIN {schema}.kept k ON k.id = h.id;

-- name: desk_holds
-- Rows of `hold` in these states that fit, along the index of each state.
SELECT h.* FROM unnest($1::text[]) s(state) CROSS JOIN LATERAL (
  SELECT h.seq, h.route, h.lane, h.id, m.message_id, m.aggregate, m.type, h.key, h.generation, h.state, h.attempts,
    h.unknowns, extract(epoch FROM h.next_attempt_at - now())::float8 AS due_in, h.error,
    extract(epoch FROM now() - h.held_at)::float8 AS held_for, cardinality(h.ids) - 1 AS behind, h.edition
  FROM {schema}.hold h LEFT JOIN LATERAL (
    SELECT m.message_id, m.aggregate, m.type FROM {schema}.message m WHERE m.lane = h.lane AND m.id = h.id
    UNION ALL SELECT k.message_id, k.aggregate, k.type FROM {schema}.kept k WHERE k.id = h.id LIMIT 1) m ON true
  WHERE h.state >= s.state AND h.state <= s.state AND h.seq > $2::bigint
    AND ($3::text IS NULL OR h.route = $3::text)
    AND ($4::text IS NULL OR m.aggregate = $4::text)
    AND ($5::text IS NULL OR h.key = $5::text)
    AND ($6::text IS NULL OR m.type = $6::text)
    AND ($7::text IS NULL OR strpos(lower(h.error), lower($7::text)) > 0)
    AND ($8::float8 IS NULL OR h.held_at >= now() - make_interval(secs => $8::float8))
  ORDER BY h.state, h.seq LIMIT $9::int) h -- a range, ordered by both, walks (state, seq) alone
ORDER BY h.seq LIMIT $9::int;

-- name: desk_scheduled
-- Messages that are to be added later, the next one first.
SELECT 'scheduled', s.id, 0, s.message_id, s.key, s.aggregate, s.type, s.topic, s.headers,
  extract(epoch FROM now() - s.created_at)::float8, extract(epoch FROM s.due - now())::float8
FROM {schema}.scheduled s
WHERE ($1::text IS NULL OR s.aggregate = $1::text) AND ($2::text IS NULL OR s.key = $2::text)
ORDER BY s.due, s.id LIMIT $3::int;
