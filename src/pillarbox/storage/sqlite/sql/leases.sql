-- name: join
-- Make a process known, with a lease.
INSERT INTO {schema}relay (id, alive_until, serves, version, host)
VALUES (?, (SELECT now FROM {schema}clock) + ?, ?, ?, ?);

-- name: renew
-- Extend the lease; a changed list of routes counts as new from now on.
UPDATE {schema}relay SET alive_until = (SELECT now FROM {schema}clock) + ?1, serves = ?2, says = ?4,
  serves_since = CASE WHEN serves = ?2 THEN serves_since ELSE (SELECT now FROM {schema}clock) END
WHERE id = ?3;

-- name: any_expired
-- Whether a lease ran out; so that looking costs no write lock. 150 s: the clock went back.
SELECT EXISTS (SELECT 1 FROM {schema}relay, {schema}clock WHERE alive_until <= now OR alive_until > now + 150);

-- name: expel
-- Forget processes whose lease ran out.
DELETE FROM {schema}relay
WHERE alive_until <= (SELECT now FROM {schema}clock) OR alive_until > (SELECT now FROM {schema}clock) + 150;

-- name: relays
-- Who lives, what it serves, and for how long.
SELECT id, serves, (SELECT now FROM {schema}clock) - serves_since FROM {schema}relay ORDER BY id;

-- name: lanes
-- Who owns what.
SELECT route, lane, owner, term FROM {schema}lane ORDER BY route, lane;

-- name: routes
-- Every stored route.
SELECT name, definition, state, nudge FROM {schema}route ORDER BY name;

-- name: any_free
-- Whether there is anything to take; so that looking costs no write lock.
SELECT EXISTS (SELECT 1 FROM {schema}lane
  WHERE route = ? AND (owner IS NULL OR owner NOT IN (SELECT id FROM {schema}relay)));

-- name: take
-- Own free lanes under a new term, picked at random.
UPDATE {schema}lane SET owner = ?1, term = term + 1
WHERE route = ?2 AND lane IN (
  SELECT lane FROM {schema}lane
  WHERE route = ?2 AND (owner IS NULL OR owner NOT IN (SELECT id FROM {schema}relay)) ORDER BY random() LIMIT ?3)
RETURNING route, lane, term, cursor;

-- name: retake
-- Own one's own lane under a new term.
UPDATE {schema}lane SET term = term + 1 WHERE route = ? AND lane = ? AND owner = ?
RETURNING route, lane, term, cursor;

-- name: load
-- The live hold rows of a lane, and those written above its cursor.
SELECT lane, seq, edition, key, ids, generation, state, attempts, unknowns,
  max(0.0, coalesce(next_attempt_at - (SELECT now FROM {schema}clock), 0.0)), error, ahead
FROM {schema}hold
WHERE route = ? AND lane IN (SELECT value FROM json_each(?)) AND (state IN ('retry', 'waiting', 'blocked') OR ahead)
ORDER BY seq;

-- name: give_back
-- Own a lane no longer.
UPDATE {schema}lane SET owner = NULL WHERE owner = ? AND route = ? AND lane = ? AND term = ?;
