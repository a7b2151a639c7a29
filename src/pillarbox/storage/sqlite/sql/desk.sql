-- name: desk_installation
-- Which installation this is, and how many bytes the file has.
SELECT environment, schema_version, (SELECT page_count FROM pragma_page_count()) * (SELECT page_size FROM pragma_page_size())
FROM {schema}installation;

-- name: desk_relays
-- The processes whose lease holds.
SELECT id, host, version, serves, says, (SELECT count(*) FROM {schema}lane l WHERE l.owner = r.id)
FROM {schema}relay r WHERE alive_until > (SELECT now FROM {schema}clock) ORDER BY host, id;

-- name: desk_routes
-- Stored routes.
SELECT name, definition, state = 'paused', start FROM {schema}route ORDER BY name;

-- name: desk_lanes
-- Each route's cursor with what it has not passed: a thousand are counted, what lies beyond is estimated.
SELECT l.route, l.lane, r.host, l.term, c.now - l.settled_at, l.cursor,
  (SELECT count(*) FROM (SELECT 1 FROM {schema}message m WHERE m.id > l.cursor ORDER BY m.id LIMIT 1000)),
  (SELECT max(id) FROM (SELECT m.id FROM {schema}message m WHERE m.id > l.cursor ORDER BY m.id LIMIT 1000)),
  c.now - (SELECT m.created_at FROM {schema}message m WHERE m.id > l.cursor ORDER BY m.id LIMIT 1)
FROM {schema}lane l CROSS JOIN {schema}clock c LEFT JOIN {schema}relay r ON r.id = l.owner AND r.alive_until > c.now
ORDER BY l.route, l.lane;

-- name: desk_counts
-- Rows and messages of each route in `hold` in a state, at most ten thousand rows, and how old the oldest is.
SELECT g.route, g.n, g.ids, (SELECT now FROM {schema}clock) - coalesce(
  (SELECT m.created_at FROM {schema}message m WHERE m.id = g.first),
  (SELECT k.created_at FROM {schema}kept k WHERE k.id = g.first))
FROM (SELECT h.route, count(*) AS n, sum(json_array_length(h.ids)) AS ids, min(h.id) AS first FROM (
    SELECT route, ids, id FROM {schema}hold WHERE state = ? ORDER BY seq LIMIT 10000) h GROUP BY h.route) g;

-- name: desk_troubles
-- The errors that are most frequent in a state of `hold`, each with its first message.
SELECT t.route, t.state, t.error, t.n, coalesce(
  (SELECT m.message_id FROM {schema}message m WHERE m.id = t.first),
  (SELECT k.message_id FROM {schema}kept k WHERE k.id = t.first))
FROM (SELECT h.route, h.state, h.error, count(*) AS n, min(h.id) AS first FROM (
    SELECT route, state, substr(error, 1, 300) AS error, id FROM {schema}hold WHERE state = ? ORDER BY seq DESC LIMIT 10000) h
  GROUP BY h.route, h.state, h.error ORDER BY n DESC LIMIT 20) t
ORDER BY t.n DESC, t.route, t.error;

-- name: desk_rest
-- Scheduled messages, and how late the first one is.
SELECT (SELECT count(*) FROM (SELECT 1 FROM {schema}scheduled LIMIT 10000)),
  (SELECT c.now - s.due FROM {schema}scheduled s CROSS JOIN {schema}clock c WHERE s.due < c.now ORDER BY s.due LIMIT 1);

-- name: desk_moved
-- Messages that a cursor has passed since it was looked at.
SELECT count(*) FROM (SELECT 1 FROM {schema}message m
  WHERE m.id > ?1 AND m.id <= (SELECT cursor FROM {schema}lane WHERE route = ?2 AND lane = 0) LIMIT 100000);

-- name: desk_find_uuid
-- A message by message id, wherever it lies.
SELECT 'log', m.id, 0, m.message_id, m.key, m.aggregate, m.type, m.topic, m.headers, c.now - m.created_at, NULL
FROM {schema}message m CROSS JOIN {schema}clock c WHERE m.message_id = ?1
UNION ALL
SELECT 'kept', k.id, 0, k.message_id, k.key, k.aggregate, k.type, k.topic, k.headers, c.now - k.created_at, NULL
FROM {schema}kept k CROSS JOIN {schema}clock c WHERE k.message_id = ?1
  AND NOT EXISTS (SELECT 1 FROM {schema}message m WHERE m.id = k.id)
UNION ALL
SELECT 'scheduled', s.id, 0, s.message_id, s.key, s.aggregate, s.type, s.topic, s.headers, c.now - s.created_at,
  s.due - c.now
FROM {schema}scheduled s CROSS JOIN {schema}clock c WHERE s.message_id = ?1;

-- name: desk_find_id
-- A message by its id in the log.
SELECT 'log', m.id, 0, m.message_id, m.key, m.aggregate, m.type, m.topic, m.headers, c.now - m.created_at, NULL
FROM {schema}message m CROSS JOIN {schema}clock c WHERE m.id = ?1
UNION ALL
SELECT 'kept', k.id, 0, k.message_id, k.key, k.aggregate, k.type, k.topic, k.headers, c.now - k.created_at, NULL
FROM {schema}kept k CROSS JOIN {schema}clock c WHERE k.id = ?1
  AND NOT EXISTS (SELECT 1 FROM {schema}message m WHERE m.id = k.id);

-- name: desk_cancelled
-- A scheduled message that an operator cancelled, and what he erased and is gone since, as the audit remembers it.
SELECT CASE a.action WHEN 'erase' THEN 'erased' ELSE 'cancelled' END, a.id, 0, ?1, json_extract(e.value, '$.key'),
  json_extract(e.value, '$.aggregate'),
  json_extract(e.value, '$.type'), NULL, NULL, c.now - a.at, NULL
FROM {schema}audit a CROSS JOIN {schema}clock c, json_each(a.detail, '$.messages') e
WHERE a.action IN ('scheduled cancel', 'erase') AND json_extract(e.value, '$.id') = ?2 LIMIT 1;

-- name: desk_of_key
-- What some cursor has not passed yet of a key: at most a hundred thousand rows are looked at.
SELECT 'log', m.id, 0, m.message_id, m.key, m.aggregate, m.type, m.topic, m.headers, c.now - m.created_at, NULL
FROM (SELECT id FROM {schema}message WHERE id > coalesce((SELECT min(cursor) FROM {schema}lane), 0)
      ORDER BY id LIMIT 100000) x
JOIN {schema}message m ON m.id = x.id CROSS JOIN {schema}clock c
WHERE m.key = CAST(?1 AS TEXT) AND (?2 IS NULL OR m.aggregate = ?2) ORDER BY m.id LIMIT ?3;

-- name: desk_held_of_key
-- Ids that the live or dead rows of a key hold, in the order of its queue.
SELECT i.value FROM {schema}route r CROSS JOIN {schema}hold h ON h.route = r.name AND h.lane = 0 AND h.key = CAST(?1 AS TEXT)
CROSS JOIN json_each(h.ids) i
WHERE h.state IN ('retry', 'waiting', 'blocked', 'dead') ORDER BY h.seq, i.key LIMIT ?2;

-- name: desk_all_of_key
-- Messages of a key of an aggregate among the next 50,000 of the log, and the last of these to go on from.
SELECT m.id, m.key = ?1 AND m.aggregate = ?2 FROM (
  SELECT id, key, aggregate FROM {schema}message WHERE id > ?3 ORDER BY id LIMIT 50000) m
WHERE m.key = ?1 AND m.aggregate = ?2
  OR m.id = (SELECT max(id) FROM (SELECT id FROM {schema}message WHERE id > ?3 ORDER BY id LIMIT 50000))
ORDER BY m.id;

-- name: desk_kept_of_key
-- What retention kept of a key of an aggregate.
SELECT id FROM {schema}kept WHERE key = ? AND aggregate = ?;

-- name: desk_standings
-- For each route: whether its cursor has passed a message, how many are before it, who owns the lane.
SELECT r.name, r.definition, r.state = 'paused', ?1, ?1 <= l.cursor,
  (SELECT count(*) FROM (SELECT 1 FROM {schema}message b WHERE b.id > l.cursor AND b.id < ?1 LIMIT 1000)),
  p.host, l.term, c.now - l.settled_at
FROM {schema}route r JOIN {schema}lane l ON l.route = r.name AND l.lane = 0 CROSS JOIN {schema}clock c
LEFT JOIN {schema}relay p ON p.id = l.owner AND p.alive_until > c.now ORDER BY r.name;

-- name: desk_lines_of
-- The hold rows of a message, as their head or inside a run, in the order they were written; its key may be NULL.
SELECT h.seq, h.route, h.lane, ?1, NULL, NULL, NULL, h.key, h.generation,
  CASE WHEN h.id <> ?1 THEN 'waiting' ELSE h.state END, h.attempts, h.unknowns, h.next_attempt_at - c.now, h.error,
  c.now - h.held_at, json_array_length(h.ids) - 1 - (SELECT i.key FROM json_each(h.ids) i WHERE i.value = ?1), h.edition
FROM {schema}hold h CROSS JOIN {schema}clock c WHERE h.seq IN (
  SELECT x.seq FROM {schema}hold x WHERE x.id = ?1
  UNION
  SELECT x.seq FROM {schema}route r CROSS JOIN {schema}hold x ON x.route = r.name AND x.lane = 0 AND x.key = CAST(?2 AS TEXT)
  WHERE ?1 IN (SELECT i.value FROM json_each(x.ids) i))
ORDER BY h.seq;

-- name: desk_heads
-- What a key waits for in each route: its first live row, with its message.
SELECT h.seq, h.route, h.lane, h.id, coalesce(m.message_id, k.message_id), coalesce(m.aggregate, k.aggregate),
  coalesce(m.type, k.type), h.key, h.generation, h.state, h.attempts, h.unknowns, h.next_attempt_at - c.now, h.error,
  c.now - h.held_at, json_array_length(h.ids) - 1, h.edition
FROM {schema}route r CROSS JOIN {schema}hold h ON h.seq = (
  SELECT x.seq FROM {schema}hold x WHERE x.route = r.name AND x.lane = 0 AND x.key = CAST(? AS TEXT) AND x.generation = 0
    AND x.state IN ('retry', 'waiting', 'blocked') ORDER BY x.seq LIMIT 1)
CROSS JOIN {schema}clock c
LEFT JOIN {schema}message m ON m.id = h.id LEFT JOIN {schema}kept k ON k.id = h.id;

-- name: desk_holds
-- Rows of `hold` in a state that fit, along its index.
SELECT h.seq, h.route, h.lane, h.id, coalesce(m.message_id, k.message_id), coalesce(m.aggregate, k.aggregate),
  coalesce(m.type, k.type), h.key, h.generation, h.state, h.attempts, h.unknowns, h.next_attempt_at - c.now, h.error,
  c.now - h.held_at, json_array_length(h.ids) - 1, h.edition
FROM {schema}hold h CROSS JOIN {schema}clock c
LEFT JOIN {schema}message m ON m.id = h.id LEFT JOIN {schema}kept k ON k.id = h.id
WHERE h.state = ?1 AND h.seq > ?2
  AND (?3 IS NULL OR h.route = ?3)
  AND (?4 IS NULL OR coalesce(m.aggregate, k.aggregate) = ?4)
  AND (?5 IS NULL OR h.key = ?5)
  AND (?6 IS NULL OR coalesce(m.type, k.type) = ?6)
  AND (?7 IS NULL OR instr(lower(h.error), lower(?7)) > 0)
  AND (?8 IS NULL OR h.held_at >= c.now - ?8)
ORDER BY h.seq LIMIT ?9;

-- name: desk_scheduled
-- Messages that are to be added later, the next one first.
SELECT 'scheduled', s.id, 0, s.message_id, s.key, s.aggregate, s.type, s.topic, s.headers, c.now - s.created_at,
  s.due - c.now
FROM {schema}scheduled s CROSS JOIN {schema}clock c
WHERE (?1 IS NULL OR s.aggregate = ?1) AND (?2 IS NULL OR s.key = ?2) ORDER BY s.due, s.id LIMIT ?3;

-- name: act_row
-- A hold row; the write lock is held.
SELECT seq, route, lane, ids, generation, key, state, ahead, error, attempts, unknowns FROM {schema}hold WHERE seq = ?;

-- name: act_rewrite
-- A hold row as it is to be; one that is due is due now.
UPDATE {schema}hold SET ids = ?2, state = ?3, attempts = ?4, unknowns = ?5, error = CAST(?6 AS TEXT),
  next_attempt_at = CASE WHEN ?3 = 'retry' THEN (SELECT now FROM {schema}clock) END, edition = edition + 1,
  changed_at = (SELECT now FROM {schema}clock)
WHERE seq = ?1;

-- name: act_insert
-- A new hold row; one that is due is due now.
INSERT INTO {schema}hold (route, lane, ids, generation, key, state, ahead, error, attempts, unknowns, next_attempt_at)
VALUES (?1, ?2, ?3, ?4, CAST(?5 AS TEXT), ?6, ?7, CAST(?8 AS TEXT), ?9, ?10, CASE WHEN ?6 = 'retry' THEN (SELECT now FROM {schema}clock) END);

-- name: act_generation
-- The highest generation of a message, whatever the route.
SELECT coalesce(max(generation), 0) FROM {schema}hold WHERE id = ?;

-- name: act_nudge
-- Make the relays of a route look at its hold rows again.
UPDATE {schema}route SET nudge = nudge + 1 WHERE name = ?;

-- name: act_blank_log
-- Blank what a message carries; its row and its id stay.
UPDATE {schema}message SET payload = X'', headers = NULL WHERE id = ?;

-- name: act_blank_kept
-- The same for a message that retention has taken from the log.
UPDATE {schema}kept SET payload = X'', headers = NULL WHERE id = ?;

-- name: act_cancel
-- Take a message out of `scheduled`, if it is still there.
DELETE FROM {schema}scheduled WHERE message_id = ? RETURNING message_id, aggregate, type, key;

-- name: act_skip_ahead
-- A final row above the cursor, for a route that has not read this message and holds no row of it.
INSERT INTO {schema}hold (route, lane, ids, key, state, error, ahead)
SELECT r.name, 0, json_array(?2), CAST(?3 AS TEXT), 'skipped', 'erased', 1 FROM {schema}route r WHERE r.name = ?1
  AND NOT EXISTS (SELECT 1 FROM {schema}hold h WHERE h.route = ?1 AND h.id = ?2 AND h.generation = 0);

-- name: adopt_identity
-- This environment is the installation's own from now on; no relay owns anything.
UPDATE {schema}installation SET environment = ?;

-- name: adopt_lanes
-- Whoever owned a lane is deposed.
UPDATE {schema}lane SET owner = NULL, term = term + 1;

-- name: adopt_beyond
-- How many messages each route has not read.
SELECT l.route, (SELECT count(*) FROM {schema}message m WHERE m.id > l.cursor) FROM {schema}lane l ORDER BY l.route;

-- name: adopt_skip_held
-- What is held is not delivered any more.
UPDATE {schema}hold SET state = 'skipped', next_attempt_at = NULL, edition = edition + 1
WHERE state IN ('retry', 'waiting', 'blocked') RETURNING json_array_length(ids);

-- name: adopt_now
-- The cursors stand behind everything.
UPDATE {schema}lane SET cursor = ?;
