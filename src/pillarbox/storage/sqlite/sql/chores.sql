-- name: any_due
-- Whether something is due; so that looking costs no write lock.
SELECT EXISTS (SELECT 1 FROM {schema}scheduled WHERE due <= (SELECT now FROM {schema}clock));

-- name: due
-- The first messages that are due, in the order they are to have in the log.
SELECT id FROM {schema}scheduled WHERE due <= (SELECT now FROM {schema}clock) ORDER BY due, id LIMIT ?;

-- name: due_added
-- One scheduled message into the log.
INSERT INTO {schema}message
  (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, encoding, headers)
SELECT message_id, key, aggregate, type, payload, topic, version, sequence, content_type, encoding, headers
FROM {schema}scheduled WHERE id = ?;

-- name: due_gone
-- It is in the log now.
DELETE FROM {schema}scheduled WHERE id = ?;

-- name: judged
-- Up to which id every message has been judged.
SELECT judged FROM {schema}chore WHERE name = 'unrouted';

-- name: judged_up_to
-- Move the mark, never back.
UPDATE {schema}chore SET judged = max(judged, ?) WHERE name = 'unrouted';

-- name: bury_unrouted
-- No route wants this message; visible as dead under a reserved route name.
INSERT INTO {schema}hold (route, lane, ids, key, state, error)
VALUES ('unrouted', 0, json_array(?), CAST(? AS TEXT), 'dead', 'unrouted: no stored route matches');
