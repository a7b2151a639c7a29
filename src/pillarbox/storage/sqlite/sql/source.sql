-- name: read
-- The next messages above the cursor: one writer, so what is committed later has a higher id.
SELECT id, 0, key, message_id, aggregate, type, CAST(payload AS BLOB),
  CASE WHEN coalesce(topic, version, sequence, content_type, encoding, headers) IS NOT NULL THEN
    json_patch('{}', json_object('topic', topic, 'version', version, 'sequence', sequence,
      'content_type', content_type, 'encoding', encoding, 'headers', json(headers))) END
FROM {schema}message WHERE id > ? ORDER BY id LIMIT ?;

-- name: fetch
-- Messages by id, from the log or from what was kept of it; the ids come as a JSON array.
SELECT m.id, 0, m.key, m.message_id, m.aggregate, m.type, CAST(m.payload AS BLOB),
  CASE WHEN coalesce(m.topic, m.version, m.sequence, m.content_type, m.encoding, m.headers) IS NOT NULL THEN
    json_patch('{}', json_object('topic', m.topic, 'version', m.version, 'sequence', m.sequence,
      'content_type', m.content_type, 'encoding', m.encoding, 'headers', json(m.headers))) END
FROM json_each(?1) wanted JOIN {schema}message m ON m.id = wanted.value
UNION ALL
SELECT k.id, 0, k.key, k.message_id, k.aggregate, k.type, CAST(k.payload AS BLOB),
  CASE WHEN coalesce(k.topic, k.version, k.sequence, k.content_type, k.encoding, k.headers) IS NOT NULL THEN
    json_patch('{}', json_object('topic', k.topic, 'version', k.version, 'sequence', k.sequence,
      'content_type', k.content_type, 'encoding', k.encoding, 'headers', json(k.headers))) END
FROM json_each(?1) wanted JOIN {schema}kept k ON k.id = wanted.value;

-- name: data_version
-- Changes when another connection has committed.
PRAGMA data_version;

-- name: move_cursor
-- The cut of one lane, if its term is still its own.
UPDATE {schema}lane SET cursor = ?, settled_at = (SELECT now FROM {schema}clock)
WHERE route = ? AND lane = ? AND term = ?;

-- name: hold_done
-- Delivered; what an operator skipped meanwhile stays skipped.
DELETE FROM {schema}hold WHERE seq = ? AND route = ? AND lane = ? AND state <> 'skipped';

-- name: hold_changed
-- A hold row as it is to be, if it still is as it was last seen.
UPDATE {schema}hold SET ids = ?, state = ?, attempts = ?, unknowns = ?,
  next_attempt_at = (SELECT now FROM {schema}clock) + ?, error = CAST(? AS TEXT), ahead = ?,
  edition = edition + 1, changed_at = (SELECT now FROM {schema}clock)
WHERE seq = ? AND route = ? AND lane = ? AND edition = ?;

-- name: hold_added
-- A message set aside, a run that waits behind one, or one given up.
INSERT INTO {schema}hold (route, lane, ids, generation, key, state, attempts, unknowns, next_attempt_at, error, ahead)
VALUES (?, ?, ?, ?, CAST(? AS TEXT), ?, ?, ?, (SELECT now FROM {schema}clock) + ?, CAST(? AS TEXT), ?);
