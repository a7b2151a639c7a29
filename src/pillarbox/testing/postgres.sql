-- name: unsettled
-- Messages a relay that died now has not settled: outside of R of DESIGN 2.2.
SELECT m.message_id::text FROM pillarbox.message m JOIN pillarbox.lane l USING (lane)
WHERE NOT (m.id <= (l.cursor->>'last')::bigint AND pg_visible_in_snapshot(m.xid, (l.cursor->>'seen')::pg_snapshot))
  AND NOT coalesce(m.id <= least((l.cursor->>'at')::bigint, (l.cursor->>'last')::bigint)
                   AND pg_visible_in_snapshot(m.xid, (l.cursor->>'due')::pg_snapshot), false);

-- name: held
-- What was set aside or given up, wherever the message lies now.
SELECT m.message_id::text, h.state, h.attempts, h.unknowns FROM pillarbox.hold h CROSS JOIN LATERAL unnest(h.ids) i(id)
JOIN (SELECT id, message_id FROM pillarbox.message UNION SELECT id, message_id FROM pillarbox.kept) m ON m.id = i.id;

-- name: create_key
-- `n` numbers a key's messages in commit order; the row stays locked until the transaction ends.
CREATE TABLE gate_key (name text PRIMARY KEY, n integer NOT NULL DEFAULT 0);

-- name: create_done
-- The business: which messages' transactions committed.
CREATE TABLE gate_done (message_id text PRIMARY KEY);

-- name: add_key
-- A new key.
INSERT INTO gate_key (name) VALUES (%s);

-- name: count_up
-- Take a key's next number.
UPDATE gate_key SET n = n + 1 WHERE name = %s;

-- name: number
-- The number just taken.
SELECT n FROM gate_key WHERE name = %s;

-- name: do
-- The business itself.
INSERT INTO gate_done (message_id) VALUES (%s);

-- name: done
-- Every message whose business was committed.
SELECT message_id FROM gate_done;

-- name: draw
-- A transaction id long before the first message.
SELECT pg_current_xact_id();

-- name: by_hand
-- A message by plain SQL, without any library of ours.
SELECT pillarbox.add(id => %s, key => %s, aggregate => %s, type => %s, payload => %s::bytea);
