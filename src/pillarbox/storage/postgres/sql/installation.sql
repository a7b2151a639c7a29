-- name: catalog
-- What there is in the schema, by name; segments come and go and are left out.
WITH here AS (
  SELECT c.oid, c.relname, c.relkind FROM pg_class c
  WHERE c.relnamespace = to_regnamespace('{schema}') AND NOT c.relispartition
)
SELECT 'column ' || h.relname || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
FROM here h JOIN pg_attribute a ON a.attrelid = h.oid
WHERE h.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'index ' || h.relname,
       replace(pg_get_indexdef(h.oid), '{name}.', '') || CASE WHEN i.indisvalid THEN '' ELSE ' (invalid)' END
FROM here h JOIN pg_index i ON i.indexrelid = h.oid
UNION ALL
SELECT 'sequence message_id_seq', format('cache %s increment %s', seqcache, seqincrement)
FROM here h JOIN pg_sequence s ON s.seqrelid = h.oid WHERE h.relname = 'message_id_seq'
UNION ALL
SELECT 'function ' || replace(p.oid::regprocedure::text, '{name}.', ''), pg_get_function_result(p.oid)
FROM pg_proc p WHERE p.pronamespace = to_regnamespace('{schema}')
ORDER BY 1;

-- name: installation
-- Whose database this is, and whether this cluster is still the one it was installed in.
SELECT i.lanes, i.environment, i.schema_version,
       i.system_identifier = (SELECT c.system_identifier::text FROM pg_control_system() c)
FROM {schema}.installation i;

-- name: schema_version
-- Which migrations were applied.
SELECT schema_version FROM {schema}.installation;

-- name: create_schema
-- Where there is none: who may not create schemas is given one.
CREATE SCHEMA {schema};

-- name: note_installed
-- What the first migration leaves behind, in its transaction.
INSERT INTO {schema}.installation (lanes, environment, system_identifier, schema_version)
SELECT {lanes}, '{environment}', system_identifier::text, {number} FROM pg_control_system();

-- name: note_migrated
-- What every later one leaves behind, in its transaction.
UPDATE {schema}.installation SET schema_version = {number};

-- name: grants_writer
-- Adds messages; sees of them only what an add returns.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT USAGE ON SEQUENCE {schema}.message_id_seq TO {role};
GRANT INSERT (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, encoding, headers,
  created_at) ON {schema}.message TO {role};
GRANT SELECT (id, message_id) ON {schema}.message TO {role};
GRANT SELECT (key, message_id), INSERT (key, message_id) ON {schema}.unique_key TO {role};
GRANT INSERT (due, message_id, key, aggregate, type, payload, topic, version, sequence, content_type, encoding,
  headers, created_at) ON {schema}.scheduled TO {role};

-- name: grants_relay
-- Reads the log, moves cursors, keeps the exceptions; neither changes nor deletes a message.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role};
GRANT SELECT ON {schema}.message, {schema}.segment, {schema}.installation TO {role};
GRANT INSERT (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, encoding, headers,
  created_at) ON {schema}.message TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.route, {schema}.lane, {schema}.relay, {schema}.hold, {schema}.kept,
  {schema}.scheduled, {schema}.unique_key, {schema}.chore, {schema}.boot TO {role};
GRANT SELECT, INSERT ON {schema}.audit TO {role};

-- name: grants_viewer
-- Looks at everything but payloads.
GRANT USAGE ON SCHEMA {schema} TO {role};
GRANT SELECT ON SEQUENCE {schema}.message_id_seq TO {role};
GRANT SELECT ON {schema}.segment, {schema}.installation, {schema}.route, {schema}.lane, {schema}.relay, {schema}.hold,
  {schema}.unique_key, {schema}.chore, {schema}.boot, {schema}.audit TO {role};
GRANT SELECT (id, xid, message_id, key, lane, aggregate, type, topic, version, sequence, content_type, encoding,
  headers, created_at) ON {schema}.message, {schema}.kept TO {role};
GRANT SELECT (id, due, message_id, key, aggregate, type, topic, version, sequence, content_type, encoding, headers,
  created_at) ON {schema}.scheduled TO {role};
