-- name: add
-- Append one message that has what most have. Parameters are text and bytea, whatever codecs the connection has.
INSERT INTO {schema}.message (message_id, key, aggregate, type, payload)
VALUES ($1::text::uuid, $2::text, $3::text, $4::text, $5::bytea);

-- name: add_full
-- Append one message with all it may have.
INSERT INTO {schema}.message
  (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers)
VALUES ($1::text::uuid, $2::text, $3::text, $4::text, $5::bytea,
  $6::text, $7::text::int4, $8::text::int8, $9::text, $10::text::json);

-- name: add_many
-- Append messages in their order. An array that is null stands for nulls all the way.
INSERT INTO {schema}.message
  (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers)
SELECT message_id::uuid, key, aggregate, type, payload, topic, version::int4, sequence::int8, content_type, headers::json
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[],
  $6::text[], $7::text[], $8::text[], $9::text[], $10::text[]) WITH ORDINALITY
  AS given (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers, n)
ORDER BY n;

-- name: add_claiming
-- Append or schedule what nobody has claimed before, and say which were claimed. A twin in another transaction waits
-- here for the first one's end. Keys are claimed in sorted order, so that two batches do not lock each other out, and
-- an id only once its message has its key, so that nothing is claimed that is not added.
WITH given AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[],
    $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[]) WITH ORDINALITY
    AS given (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers,
      unique_key, id_key, due, n)
), keys AS (
  INSERT INTO {schema}.unique_key (key, message_id)
  SELECT unique_key, message_id::uuid FROM given WHERE unique_key IS NOT NULL ORDER BY unique_key COLLATE "C"
  ON CONFLICT (key) DO NOTHING RETURNING key
), free AS MATERIALIZED (
  SELECT * FROM given WHERE unique_key IS NULL OR unique_key IN (SELECT key FROM keys)
), ids AS (
  INSERT INTO {schema}.unique_key (key, message_id)
  SELECT id_key, message_id::uuid FROM free WHERE id_key IS NOT NULL ORDER BY id_key COLLATE "C"
  ON CONFLICT (key) DO NOTHING RETURNING key
), fresh AS MATERIALIZED (
  SELECT * FROM free WHERE id_key IS NULL OR id_key IN (SELECT key FROM ids)
), later AS (
  INSERT INTO {schema}.scheduled
    (due, message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers)
  SELECT due::timestamptz, message_id::uuid, key, aggregate, type, payload, topic, version::int4, sequence::int8,
    content_type, headers::json
  FROM fresh WHERE due IS NOT NULL ORDER BY n
), now AS (
  INSERT INTO {schema}.message
    (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers)
  SELECT message_id::uuid, key, aggregate, type, payload, topic, version::int4, sequence::int8,
    content_type, headers::json
  FROM fresh WHERE due IS NULL ORDER BY n
)
SELECT (n - 1)::text FROM given WHERE n NOT IN (SELECT n FROM fresh) ORDER BY n;

-- name: claimed
-- Whose message a unique key stands for. A statement of its own: the one that lost the race does not see the winner.
SELECT key, message_id::text FROM {schema}.unique_key WHERE key = ANY ($1::text[]);

-- name: delayed
-- The messages that wait for their time, the next one first.
SELECT message_id::text, key, aggregate, type, payload, topic, version::text, sequence::text, content_type,
  headers::text, (extract(epoch FROM due) * 1000000)::int8::text
FROM {schema}.scheduled ORDER BY due, id LIMIT $1::text::int8;

-- name: cancel_delayed
-- Take back a message before its time; whoever moves it into the log holds its row.
DELETE FROM {schema}.scheduled WHERE message_id = $1::text::uuid;

-- name: messages_of_transaction
-- What this transaction has added so far, in its order.
SELECT message_id::text, key, aggregate, type, payload, topic, version::text, sequence::text, content_type,
  headers::text
FROM {schema}.message WHERE xid = pg_current_xact_id_if_assigned() ORDER BY id;
