-- name: unsettled
-- Messages a relay that died now has not settled.
SELECT message_id FROM pillarbox_message WHERE id > (SELECT coalesce(min(cursor), 0) FROM pillarbox_lane);

-- name: held
-- What was set aside or given up.
SELECT m.message_id, h.state, h.attempts, h.unknowns
FROM pillarbox_hold h, json_each(h.ids) i JOIN pillarbox_message m ON m.id = i.value;
