-- name: read
-- The late and the fresh rows of all lanes in one snapshot; first a row with the snapshot, the last id drawn, the token.
-- $1 `last` by lane, null where not asked or catching up; a group each: $2 seen, $3 at, $4 highest last, $5 lasts by
-- lane, $6 due; $7 fresh rows a lane, $8 late rows a group. Rows of one lane come in id order: late ones are below
-- `last`. Nothing at or below `lo` is late: the end of what was closed before `seen` began (DESIGN 2.2 rule 8).
-- Headers go out as they are written: a function that looks inside (json_strip_nulls) raises at a lone surrogate, and
-- one message would stop all lanes.
WITH s AS MATERIALIZED (SELECT pg_current_snapshot() AS now),
g AS MATERIALIZED (
  SELECT t.n, t.seen, greatest(t.at, lo.id) AS at, t.hi, t.lasts::int8[] AS lasts,
         coalesce(t.due::pg_snapshot, s.now) AS found_in,
         pg_snapshot_xmax(t.seen) AS xmax, pg_snapshot_xmax(coalesce(t.due::pg_snapshot, s.now)) AS upto
  FROM s, (SELECT n, seen::pg_snapshot AS seen, at, hi, lasts, due
           FROM unnest($2::text[], $3::int8[], $4::int8[], $5::text[], $6::text[])
                WITH ORDINALITY AS t(seen, at, hi, lasts, due, n)) t
  CROSS JOIN LATERAL (SELECT (max(c.n) + 1) * 10000000000 AS id FROM {schema}.segment c
                      WHERE c.closed_by < pg_snapshot_xmin(t.seen)) lo
),
ended AS MATERIALIZED (
  SELECT g.n, g.at, g.hi, g.lasts, x.id AS xid FROM g CROSS JOIN LATERAL pg_snapshot_xip(g.seen) AS x(id)
  WHERE pg_visible_in_snapshot(x.id, g.found_in)
),
late AS (
  SELECT z.* FROM g CROSS JOIN LATERAL (
    SELECT * FROM (
      SELECT m.* FROM ended e CROSS JOIN LATERAL (
        SELECT m.* FROM {schema}.message m
        WHERE m.xid = e.xid AND m.id > e.at AND m.id <= e.hi AND m.id <= e.lasts[m.lane + 1]
        ORDER BY m.xid, m.id LIMIT $8) m
      WHERE e.n = g.n
      UNION ALL
      SELECT m.* FROM (
        SELECT m.* FROM {schema}.message m
        WHERE m.xid >= g.xmax AND m.xid < g.upto AND m.id > g.at AND m.id <= g.hi AND m.id <= g.lasts[m.lane + 1]
          AND pg_visible_in_snapshot(m.xid, g.found_in)
        ORDER BY m.xid, m.id OFFSET 0) m
    ) y ORDER BY id LIMIT $8) z
),
fresh AS (
  SELECT m.* FROM unnest($1::int8[]) WITH ORDINALITY AS c(last, n) CROSS JOIN LATERAL (
    SELECT m.* FROM {schema}.message m
    WHERE m.lane = (c.n - 1)::int2 AND m.id > c.last ORDER BY m.lane, m.id LIMIT $7) m
  WHERE c.last IS NOT NULL
)
SELECT (SELECT last_value FROM {schema}.message_id_seq) AS id, NULL::int2 AS lane, (SELECT now::text FROM s) AS key,
       (SELECT uuid_send(token) FROM {schema}.boot) AS message_id, NULL::text AS aggregate, NULL::text AS type,
       NULL::bytea AS payload, NULL::text AS more
UNION ALL
SELECT m.id, m.lane, m.key, uuid_send(m.message_id), m.aggregate, m.type, m.payload,
       CASE WHEN m.topic IS NULL AND m.version IS NULL AND m.sequence IS NULL AND m.content_type IS NULL
                 AND m.encoding IS NULL AND m.headers IS NULL THEN NULL
            ELSE json_build_object('topic', m.topic, 'version', m.version, 'sequence', m.sequence,
              'content_type', m.content_type, 'encoding', m.encoding, 'headers', m.headers)::text END
FROM (SELECT * FROM late UNION ALL SELECT * FROM fresh) m;

-- name: fetch
-- These messages again, from the log or from what was kept of it (from one, while a range is going).
SELECT m.id, m.lane, m.key, uuid_send(m.message_id), m.aggregate, m.type, m.payload,
       CASE WHEN m.topic IS NULL AND m.version IS NULL AND m.sequence IS NULL AND m.content_type IS NULL
                 AND m.encoding IS NULL AND m.headers IS NULL THEN NULL
            ELSE json_build_object('topic', m.topic, 'version', m.version, 'sequence', m.sequence,
              'content_type', m.content_type, 'encoding', m.encoding, 'headers', m.headers)::text END
FROM unnest($1::int8[]) AS q(id) CROSS JOIN LATERAL (
  -- The primary key begins with the lane. A join would be free to look for the id alone, through the whole index.
  SELECT l.* FROM generate_series(0, (SELECT lanes - 1 FROM {schema}.installation)) AS n
    CROSS JOIN LATERAL (SELECT * FROM {schema}.message WHERE lane = n::int2 AND id = q.id LIMIT 1) l
  UNION ALL SELECT k.* FROM {schema}.kept k WHERE k.id = q.id
  LIMIT 1) m;

-- name: flush
-- A commit of our own is flushed, and with it every commit before it.
SELECT pg_logical_emit_message(true, 'pillarbox', '');
