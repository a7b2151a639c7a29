-- name: unsettled
-- Messages a relay that died now has not settled.
SELECT message_id FROM pillarbox_message WHERE id > (SELECT coalesce(min(cursor), 0) FROM pillarbox_lane);

-- name: held
-- What was set aside or given up, wherever the message lies now.
SELECT m.message_id, h.state, h.attempts, h.unknowns FROM pillarbox_hold h, json_each(h.ids) i
JOIN (SELECT id, message_id FROM pillarbox_message UNION SELECT id, message_id FROM pillarbox_kept) m ON m.id = i.value;

-- name: create_key
-- `n` numbers a key's messages in commit order; the row stays locked until the transaction ends.
CREATE TABLE gate_key (name TEXT PRIMARY KEY NOT NULL, n INTEGER NOT NULL DEFAULT 0);

-- name: create_done
-- The business: which messages' transactions committed.
CREATE TABLE gate_done (message_id TEXT PRIMARY KEY NOT NULL);

-- name: add_key
-- A new key.
INSERT INTO gate_key (name) VALUES (?);

-- name: count_up
-- Take a key's next number.
UPDATE gate_key SET n = n + 1 WHERE name = ?;

-- name: number
-- The number just taken.
SELECT n FROM gate_key WHERE name = ?;

-- name: do
-- The business itself.
INSERT INTO gate_done (message_id) VALUES (?);

-- name: done
-- Every message whose business was committed.
SELECT message_id FROM gate_done;

-- name: draw
-- SQLite has no transaction ids to draw early; a read makes no difference.
SELECT 1;

-- name: by_hand
-- A message by plain SQL, without any library of ours.
INSERT INTO pillarbox_message (message_id, key, aggregate, type, payload) VALUES (?, ?, ?, ?, ?);
