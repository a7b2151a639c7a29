-- name: join
-- Make a process known.
INSERT INTO {schema}.relay (id, alive_until, serves, version, host)
VALUES ($1::uuid, now() + $2::float8 * interval '1 second', $3::text[], $4, $5);

-- name: renew
-- Prolong the lease, by the database's clock; no row: expelled.
UPDATE {schema}.relay
SET alive_until = now() + $2::float8 * interval '1 second', serves = $3::text[], says = $4::text[],
    serves_since = CASE WHEN serves = $3::text[] THEN serves_since ELSE now() END
WHERE id = $1::uuid RETURNING 1;

-- name: expel
-- Delete processes whose lease ran out. A lease of over twice the longest one: the database's clock went back.
DELETE FROM {schema}.relay WHERE id IN (
  SELECT id FROM {schema}.relay
  WHERE alive_until <= now() OR alive_until > now() + interval '150 seconds' FOR UPDATE SKIP LOCKED)
RETURNING 1;

-- name: survey
-- Who lives, who owns what, which routes are stored; one snapshot.
SELECT json_build_object(
  'relays', (SELECT coalesce(json_agg(json_build_array(id, serves, extract(epoch FROM now() - serves_since))
                                      ORDER BY id), '[]')
             FROM {schema}.relay WHERE alive_until > now()),
  'lanes', (SELECT coalesce(json_agg(json_build_array(route, lane, owner, term) ORDER BY route, lane), '[]')
            FROM {schema}.lane),
  'routes', (SELECT coalesce(json_agg(json_build_array(name, definition, state, nudge) ORDER BY name), '[]')
             FROM {schema}.route))::text;

-- name: take
-- Raise the term of free lanes and own them, if this database is the one the caller means (DESIGN 2.2 rule 6).
-- MATERIALIZED: a nested loop may scan a LIMIT twice and take more than its share. The term is looked up again: a
-- lane that changed since this snapshot may belong to a relay this snapshot has not seen born.
WITH here AS MATERIALIZED (
  SELECT i.environment = $4 AND i.system_identifier = c.system_identifier::text AS ours, i.environment
  FROM {schema}.installation i, pg_control_system() c
),
pick AS MATERIALIZED (
  SELECT l.route, l.lane FROM {schema}.lane l
  WHERE l.route = $2 AND (SELECT ours FROM here)
    AND (l.owner IS NULL OR NOT EXISTS (SELECT FROM {schema}.relay r WHERE r.id = l.owner))
    AND l.term = (SELECT o.term FROM {schema}.lane o WHERE o.route = l.route AND o.lane = l.lane)
  ORDER BY random() LIMIT $3 FOR UPDATE OF l SKIP LOCKED
),
taken AS (
  UPDATE {schema}.lane l SET owner = $1::uuid, term = l.term + 1
  FROM pick WHERE l.route = pick.route AND l.lane = pick.lane
  RETURNING l.route, l.lane, l.term, l.cursor
)
SELECT here.ours, here.environment, (SELECT uuid_send(token) FROM {schema}.boot),
       taken.route, taken.lane, taken.term, taken.cursor::text
FROM here LEFT JOIN taken ON true;

-- name: heal
-- A crash or a promotion has emptied the table: a new life, a new token.
INSERT INTO {schema}.boot DEFAULT VALUES ON CONFLICT DO NOTHING;

-- name: retake
-- After a doubt, raise the terms of one's own lanes: a settle that is still on its way then changes nothing (R12).
-- With another token than before, all of them are in doubt.
WITH here AS MATERIALIZED (
  SELECT i.environment = $2 AND i.system_identifier = c.system_identifier::text AS ours, i.environment
  FROM {schema}.installation i, pg_control_system() c
),
boot AS MATERIALIZED (SELECT (SELECT token FROM {schema}.boot) AS token),
taken AS (
  UPDATE {schema}.lane l SET term = l.term + 1 FROM here, boot
  WHERE l.owner = $1::uuid AND here.ours AND boot.token IS NOT NULL
    AND (boot.token IS DISTINCT FROM $3::uuid
         OR (l.route, l.lane) IN (SELECT * FROM unnest($4::text[], $5::int2[])))
  RETURNING l.route, l.lane, l.term, l.cursor
)
SELECT here.ours, here.environment, uuid_send(boot.token), taken.route, taken.lane, taken.term, taken.cursor::text
FROM here CROSS JOIN boot LEFT JOIN taken ON true;

-- name: load
-- What holds keys back in these lanes, and what speaks for ids above the cursor; a statement after the take.
SELECT lane, seq, edition, key, ids, generation, state, attempts, unknowns,
       coalesce(greatest(extract(epoch FROM next_attempt_at - now()), 0), 0)::float8, error, ahead
FROM {schema}.hold
WHERE route = $1 AND lane = ANY ($2::int2[]) AND (state IN ('retry', 'waiting', 'blocked') OR ahead)
ORDER BY seq;

-- name: give_back
-- Own these lanes no longer, where they are still one's own.
UPDATE {schema}.lane l SET owner = NULL
FROM unnest($3::int2[], $4::int8[]) AS g(lane, term)
WHERE l.route = $2 AND l.owner = $1::uuid AND l.lane = g.lane AND l.term = g.term;
