-- name: act_lock
-- These hold rows, held until the end of the transaction; always in the same order, so that operators never deadlock.
SELECT h.seq, h.route, h.lane, h.ids, h.generation, h.key, h.state, h.ahead, h.error, h.attempts, h.unknowns
FROM {schema}.hold h WHERE h.seq = ANY ($1::bigint[]) ORDER BY h.seq FOR UPDATE;

-- name: act_patience
-- Give up before the server looks for deadlocks: a relay's settle must never be the one that is ended.
SELECT set_config('lock_timeout', '500ms', true);

-- name: act_rewrite
-- Hold rows as they are to be; those that are due are due now.
UPDATE {schema}.hold h SET ids = w.ids::bigint[], state = w.state, attempts = w.attempts, unknowns = w.unknowns,
  error = w.error, next_attempt_at = CASE WHEN w.state = 'retry' THEN now() END, edition = h.edition + 1, changed_at = now()
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::int[], $5::int[], $6::text[])
  w(seq, ids, state, attempts, unknowns, error)
WHERE h.seq = w.seq;

-- name: act_insert
-- New hold rows, in their order; those that are due are due now.
INSERT INTO {schema}.hold (route, lane, ids, generation, key, state, attempts, unknowns, error, ahead, next_attempt_at)
SELECT w.route, w.lane, w.ids::bigint[], w.generation, w.key, w.state, w.attempts, w.unknowns, w.error, w.ahead,
  CASE WHEN w.state = 'retry' THEN now() END
FROM unnest($1::text[], $2::int2[], $3::text[], $4::int[], $5::text[], $6::text[], $7::int[], $8::int[], $9::text[],
  $10::bool[]) WITH ORDINALITY w(route, lane, ids, generation, key, state, attempts, unknowns, error, ahead, n)
ORDER BY w.n;

-- name: act_generations
-- The highest generation of each of these messages, whatever the route.
SELECT h.id, max(h.generation) FROM {schema}.hold h WHERE h.id = ANY ($1::bigint[]) GROUP BY h.id;

-- name: act_nudge
-- Make the relays of these routes look at their hold rows again.
UPDATE {schema}.route SET nudge = nudge + 1 WHERE name = ANY ($1::text[]);

-- name: act_audit
-- Who did what to which messages.
INSERT INTO {schema}.audit (who, host, action, why, detail) VALUES ($1::text, $2::text, $3::text, $4::text, $5::text::json);

-- name: act_route
-- Whether this route is stored.
SELECT name FROM {schema}.route WHERE name = $1::text FOR KEY SHARE;

-- name: act_blank_log
-- Blank what a message carries; its row, its id and its transaction id stay.
UPDATE {schema}.message m SET payload = '', headers = NULL
FROM unnest($1::bigint[], $2::int2[]) w(id, lane) WHERE m.lane = w.lane AND m.id = w.id;

-- name: act_blank_kept
-- The same for a message whose segment has gone.
UPDATE {schema}.kept k SET payload = '', headers = NULL WHERE k.id = ANY ($1::bigint[]);

-- name: act_cancel
-- Take messages out of `scheduled`; the ones still there.
DELETE FROM {schema}.scheduled s USING unnest($1::uuid[]) w(message_id) WHERE s.message_id = w.message_id
RETURNING s.message_id, s.aggregate, s.type, s.key;

-- name: act_unfinished
-- Of these messages, what is in `hold` of a route and not final: it must not be delivered any more.
SELECT DISTINCT h.seq FROM unnest($1::bigint[], $2::int2[], $3::text[]) w(id, lane, key) CROSS JOIN LATERAL (
  SELECT x.seq, x.state FROM {schema}.hold x WHERE x.id = w.id
  UNION ALL
  SELECT x.seq, x.state FROM {schema}.route r JOIN {schema}.hold x ON x.route = r.name AND x.lane = w.lane AND x.key = w.key
  WHERE x.id <> w.id AND w.id = ANY (x.ids)) h
WHERE h.state IN ('retry', 'waiting', 'blocked', 'dead') ORDER BY h.seq;

-- name: act_skip_ahead
-- Final rows above the cursors, for routes that have not read these messages and hold no row of them.
INSERT INTO {schema}.hold (route, lane, ids, key, state, error, ahead)
SELECT w.route, w.lane, ARRAY[w.id], w.key, 'skipped', w.error, true
FROM unnest($1::text[], $2::int2[], $3::bigint[], $4::text[], $5::text[]) w(route, lane, id, key, error)
JOIN {schema}.lane l ON l.route = w.route AND l.lane = w.lane
WHERE NOT EXISTS (SELECT FROM {schema}.hold h WHERE h.route = w.route AND h.id = w.id AND h.generation = 0)
RETURNING id;
