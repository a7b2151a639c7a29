-- name: settle
-- Move the cursors of all lanes and change their hold rows, where the term and the crash token are still their own.
-- One statement: a client frozen between BEGIN and COMMIT would keep its lanes locked, and nobody could take them.
-- Every change is joined to `moved`, so a deposed lane drops only its own. A lane missing from the answer is deposed.
WITH v AS MATERIALIZED (
  SELECT lane, term, cursor FROM unnest($2::int2[], $3::int8[], $4::text[]) AS t(lane, term, cursor) ORDER BY lane
),
boot AS MATERIALIZED (SELECT (SELECT token FROM {schema}.boot) AS token),
moved AS (
  UPDATE {schema}.lane l SET cursor = v.cursor::json, settled_at = now() FROM v, boot
  WHERE l.route = $1 AND l.lane = v.lane AND l.term = v.term AND boot.token = $5::uuid
  RETURNING l.lane
),
done AS (
  DELETE FROM {schema}.hold h USING moved, unnest($6::int2[], $7::int8[]) AS d(lane, seq)
  WHERE d.lane = moved.lane AND h.route = $1 AND h.lane = d.lane AND h.seq = d.seq AND h.state <> 'skipped'
),
changed AS (
  UPDATE {schema}.hold h
  SET ids = c.ids::int8[], state = c.state, attempts = c.attempts, unknowns = c.unknowns, error = c.error,
      ahead = c.ahead, edition = h.edition + 1, changed_at = now(),
      next_attempt_at = CASE WHEN c.state = 'retry' THEN now() + c.due_in * interval '1 second' END
  FROM moved, unnest($8::int2[], $9::int8[], $10::int4[], $11::text[], $12::text[], $13::int4[], $14::int4[],
                     $15::float8[], $16::text[], $17::bool[])
              AS c(lane, seq, edition, ids, state, attempts, unknowns, due_in, error, ahead)
  WHERE c.lane = moved.lane AND h.route = $1 AND h.lane = c.lane AND h.seq = c.seq AND h.edition = c.edition
  RETURNING h.lane, h.seq
),
added AS (
  INSERT INTO {schema}.hold
    (route, lane, key, ids, generation, state, attempts, unknowns, next_attempt_at, error, ahead)
  SELECT $1, a.lane, a.key, a.ids::int8[], a.generation, a.state, a.attempts, a.unknowns,
         CASE WHEN a.state = 'retry' THEN now() + a.due_in * interval '1 second' END, a.error, a.ahead
  FROM unnest($18::int2[], $19::text[], $20::text[], $21::int4[], $22::text[], $23::int4[], $24::int4[],
              $25::float8[], $26::text[], $27::bool[])
       WITH ORDINALITY AS a(lane, key, ids, generation, state, attempts, unknowns, due_in, error, ahead, n)
  JOIN moved USING (lane) ORDER BY a.n
  RETURNING lane, seq
)
SELECT 'token', NULL::int2, NULL::int8 FROM boot WHERE token IS DISTINCT FROM $5::uuid
UNION ALL SELECT 'moved', lane, NULL FROM moved
UNION ALL SELECT 'changed', lane, seq FROM changed
UNION ALL SELECT 'added', lane, seq FROM added;
