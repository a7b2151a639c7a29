-- name: cutoff
-- What is older than so many seconds was made before this.
SELECT (SELECT now FROM {schema}clock) - ?;

-- name: passed
-- Up to which id every cursor of every route, paused ones too, and the judge of unrouted messages are done.
SELECT CASE WHEN EXISTS (SELECT 1 FROM {schema}route) THEN
  min((SELECT min(cursor) FROM {schema}lane), (SELECT judged FROM {schema}chore WHERE name = 'unrouted')) END;

-- name: oldest
-- A window of the log's beginning, and which of its messages are old enough to go.
SELECT id, created_at <= ?1 FROM {schema}message WHERE id > ?2 AND id <= ?3 ORDER BY id LIMIT ?4;

-- name: keep
-- What a hold row still needs; ids in a row ascend, so that later rows need not be opened.
INSERT INTO {schema}kept
  (id, message_id, key, aggregate, type, payload, topic, version, sequence, content_type, encoding, headers, created_at)
SELECT id, message_id, key, aggregate, type, payload, topic, version, sequence, content_type, encoding, headers, created_at
FROM {schema}message WHERE id BETWEEN ?1 AND ?2 AND created_at <= ?3 AND id IN (
  SELECT j.value FROM {schema}hold h, json_each(h.ids) j
  WHERE h.id <= ?2 AND h.state NOT IN ('skipped', 'resolved') AND j.value BETWEEN ?1 AND ?2);

-- name: prune
-- Delivered everywhere and old.
DELETE FROM {schema}message WHERE id BETWEEN ? AND ? AND created_at <= ?;

-- name: expire_unique_keys
-- After this a key may be used again.
DELETE FROM {schema}unique_key WHERE key IN (SELECT key FROM {schema}unique_key WHERE created_at <= ? LIMIT ?);

-- name: expire_audit
-- Who did what, long ago.
DELETE FROM {schema}audit WHERE id IN (SELECT id FROM {schema}audit WHERE at <= ? ORDER BY id LIMIT ?);

-- name: expire_hold
-- Skipped and resolved rows that the cursor has passed; nobody needs them.
DELETE FROM {schema}hold WHERE seq IN (
  SELECT seq FROM {schema}hold WHERE state IN ('skipped', 'resolved') AND NOT ahead AND changed_at <= ? LIMIT ?);

-- name: expire_kept
-- Messages that no hold row points to any more.
DELETE FROM {schema}kept WHERE id IN (
  SELECT id FROM {schema}kept WHERE id NOT IN (
    SELECT j.value FROM {schema}hold h, json_each(h.ids) j WHERE h.state NOT IN ('skipped', 'resolved')) LIMIT ?);
