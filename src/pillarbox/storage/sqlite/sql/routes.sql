-- name: end_of_log
-- The highest id ever given out; stays when everything is pruned.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{schema}message'), 0);

-- name: route_stored
-- A new route; nothing if the name is taken.
INSERT INTO {schema}route (name, definition, start) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING;

-- name: lane_stored
-- Its cursor. Terms go on where a removed or renamed route of this name stopped, so that nothing of its relays, still
-- on its way, can meet a term of its own.
INSERT INTO {schema}lane (route, lane, cursor, term)
SELECT ?, 0, ?, coalesce(max(json_extract(detail, '$.term')), -1) + 1 FROM {schema}audit
WHERE action IN ('route remove', 'route rename') AND json_extract(detail, '$.route') = ?;

-- name: unrouted_in_log
-- Messages no route wanted until now, as `read` yields them, with the seq of their dead row in front.
SELECT h.seq, m.id, 0, m.key, m.message_id, m.aggregate, m.type, CAST(m.payload AS BLOB),
  CASE WHEN coalesce(m.topic, m.headers) IS NOT NULL THEN
    json_patch('{}', json_object('topic', m.topic, 'headers', json(m.headers))) END
FROM {schema}hold h JOIN {schema}message m ON m.id = h.id
WHERE h.route = 'unrouted' AND h.state = 'dead' AND h.seq > ? ORDER BY h.seq LIMIT ?;

-- name: unrouted_resolved
-- A new route from the beginning will deliver it.
UPDATE {schema}hold SET state = 'resolved', edition = edition + 1, changed_at = (SELECT now FROM {schema}clock)
WHERE seq = ?;

-- name: route_defined
-- The definition every relay executes from its next empty window on.
UPDATE {schema}route SET definition = ? WHERE name = ?;

-- name: route_state
-- running or paused.
UPDATE {schema}route SET state = ? WHERE name = ?;

-- name: route_renamed
-- The cursors and hold rows follow in the same transaction.
UPDATE {schema}route SET name = ? WHERE name = ?;

-- name: lane_renamed
-- Whoever owns the lane under the old name is deposed.
UPDATE {schema}lane SET route = ?, owner = NULL, term = term + 1 WHERE route = ?;

-- name: highest_term
-- The highest term of a route's lanes.
SELECT max(term) FROM {schema}lane WHERE route = ?;

-- name: hold_renamed
-- What an answer has set aside goes with its route.
UPDATE {schema}hold SET route = ? WHERE route = ?;

-- name: route_undelivered
-- What a removed route leaves behind: its cursor and term, and the ids of its hold rows.
SELECT l.cursor, l.term, (SELECT json_group_array(json(h.ids)) FROM {schema}hold h
  WHERE h.route = l.route AND h.state NOT IN ('skipped', 'resolved'))
FROM {schema}lane l WHERE l.route = ?;

-- name: pending
-- How many messages lie above a cursor.
SELECT count(*) FROM {schema}message WHERE id > ?;

-- name: lane_removed
-- A settle that is under way finds no row: deposed.
DELETE FROM {schema}lane WHERE route = ?;

-- name: hold_removed
-- Their ids stand in the audit row.
DELETE FROM {schema}hold WHERE route = ?;

-- name: route_removed
-- Gone.
DELETE FROM {schema}route WHERE name = ?;

-- name: audited
-- Who did what, and why.
INSERT INTO {schema}audit (who, host, why, action, detail) VALUES (?, ?, ?, ?, ?);

-- name: in_log
-- How many messages a new route from the beginning would read.
SELECT count(*) FROM {schema}message;
