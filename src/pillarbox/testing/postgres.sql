-- name: unsettled
-- Messages a relay that died now has not settled: outside of R of DESIGN 2.2.
SELECT m.message_id::text FROM pillarbox.message m JOIN pillarbox.lane l USING (lane)
WHERE NOT (m.id <= (l.cursor->>'last')::bigint AND pg_visible_in_snapshot(m.xid, (l.cursor->>'seen')::pg_snapshot))
  AND NOT coalesce(m.id <= least((l.cursor->>'at')::bigint, (l.cursor->>'last')::bigint)
                   AND pg_visible_in_snapshot(m.xid, (l.cursor->>'due')::pg_snapshot), false);

-- name: held
-- What was set aside or given up.
SELECT m.message_id::text, h.state, h.attempts, h.unknowns
FROM pillarbox.hold h CROSS JOIN LATERAL unnest(h.ids) i(id) JOIN pillarbox.message m ON m.id = i.id;
