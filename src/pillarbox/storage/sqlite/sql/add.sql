-- name: add
-- Append one message. An INSERT comes first in a transaction: the sqlite3 module opens one for it, not for a SELECT.
INSERT INTO {schema}message
  (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: schedule
-- Keep a message until it is due.
INSERT INTO {schema}scheduled
  (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers, due)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: claim
-- Claim a unique key; no row is written where it is taken.
INSERT INTO {schema}unique_key (key, message_id) VALUES (?, ?) ON CONFLICT (key) DO NOTHING;

-- name: unclaim
-- Give a claim of this transaction back.
DELETE FROM {schema}unique_key WHERE key = ?;

-- name: claimed
-- Whose message a unique key stands for.
SELECT message_id FROM {schema}unique_key WHERE key = ?;

-- name: delayed
-- The messages that wait for their time, the next one first.
SELECT message_id, key, aggregate, type, CAST(payload AS BLOB), topic, version, sequence, content_type, headers, due
FROM {schema}scheduled ORDER BY due, id LIMIT ?;

-- name: cancel_delayed
-- Take back a message before its time.
DELETE FROM {schema}scheduled WHERE message_id = ?;

-- name: messages_after
-- What is in the log behind an id, in its order.
SELECT message_id, key, aggregate, type, CAST(payload AS BLOB), topic, version, sequence, content_type, headers
FROM {schema}message WHERE id > ? ORDER BY id;

-- name: file
-- Where the database lies; empty for one in memory.
SELECT file FROM pragma_database_list WHERE name = 'main';

-- name: last_id
-- The end of the log.
SELECT coalesce(max(id), 0) FROM {schema}message;
