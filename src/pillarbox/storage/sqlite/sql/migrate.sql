-- name: is_installed
-- Whether the tables are there.
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{schema}installation');

-- name: installation
-- What the file says of itself.
SELECT schema_version, lanes, environment FROM {schema}installation;

-- name: installed
-- Write down the version that has been reached; the environment is given once.
INSERT INTO {schema}installation (environment, schema_version) VALUES (?, ?)
ON CONFLICT (one) DO UPDATE SET schema_version = excluded.schema_version;

-- name: objects
-- What was made for us, without what SQLite makes by itself.
SELECT name, sql FROM sqlite_master WHERE name LIKE 'pillarbox\_%' ESCAPE '\' AND sql IS NOT NULL;
