-- The log, its cursors and what stands beside them. {schema} and {lanes} are filled in by `migrate`.
CREATE SEQUENCE {schema}.message_id_seq AS bigint CACHE 1;

CREATE FUNCTION {schema}.uuid7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT encode(set_bit(set_bit(overlay(pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
    PLACING substring(pg_catalog.int8send((extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint) FROM 3)
    FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- The id is drawn after the transaction id, else `segment.closed_by` proves nothing (DESIGN 2.2 rule 1).
CREATE TABLE {schema}.message (
  id bigint NOT NULL DEFAULT nextval(CASE WHEN pg_current_xact_id() IS NOT NULL
                                          THEN '{schema}.message_id_seq'::regclass END),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  message_id uuid NOT NULL DEFAULT {schema}.uuid7(),
  key text,
  lane int2 NOT NULL GENERATED ALWAYS AS
    ((hashtextextended(coalesce(key, message_id::text) COLLATE "C", 0) & ({lanes} - 1))::int2) STORED,
  aggregate text NOT NULL,
  type text NOT NULL,
  payload bytea NOT NULL,
  topic text,
  version integer,
  sequence bigint,
  content_type text, -- null: application/json
  encoding text,
  headers json,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (lane, id)
) PARTITION BY RANGE (id);
CREATE INDEX message_xid ON {schema}.message (xid, id);
CREATE INDEX message_message_id ON {schema}.message (message_id);

-- Range n holds the ids from n * 10^10; it never fills: time or a number of rows ends it.
CREATE TABLE {schema}.segment (
  n bigint PRIMARY KEY,
  state text NOT NULL CHECK (state IN ('ahead', 'open', 'closed', 'dropping')),
  lockers text[] NOT NULL DEFAULT '{}',
  closed_by xid8,
  opened_at timestamptz,
  closed_at timestamptz
);
CREATE TABLE {schema}.message_0 PARTITION OF {schema}.message FOR VALUES FROM (0) TO (10000000000);
CREATE TABLE {schema}.message_1 PARTITION OF {schema}.message FOR VALUES FROM (10000000000) TO (20000000000);
CREATE TABLE {schema}.message_2 PARTITION OF {schema}.message FOR VALUES FROM (20000000000) TO (30000000000);
CREATE TABLE {schema}.message_3 PARTITION OF {schema}.message FOR VALUES FROM (30000000000) TO (40000000000);
INSERT INTO {schema}.segment (n, state, opened_at) VALUES (0, 'open', now());
INSERT INTO {schema}.segment (n, state) VALUES (1, 'ahead'), (2, 'ahead'), (3, 'ahead');

CREATE TABLE {schema}.installation (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  lanes integer NOT NULL,
  environment text NOT NULL,
  system_identifier text NOT NULL,
  schema_version integer NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- A crash or a promotion empties it; every statement that names a term compares the token (DESIGN 2.2 rule 5).
CREATE UNLOGGED TABLE {schema}.boot (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  token uuid NOT NULL DEFAULT gen_random_uuid()
);

CREATE TABLE {schema}.route (
  name text PRIMARY KEY,
  definition json NOT NULL,
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'paused')),
  start text NOT NULL CHECK (start IN ('beginning', 'now')),
  nudge bigint NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE {schema}.lane (
  route text NOT NULL REFERENCES {schema}.route (name) ON UPDATE CASCADE ON DELETE CASCADE,
  lane int2 NOT NULL,
  cursor json NOT NULL,
  owner uuid,
  term bigint NOT NULL DEFAULT 0,
  settled_at timestamptz,
  PRIMARY KEY (route, lane)
) WITH (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE {schema}.relay (
  id uuid PRIMARY KEY,
  started timestamptz NOT NULL DEFAULT now(),
  alive_until timestamptz NOT NULL,
  serves text[] NOT NULL,
  serves_since timestamptz NOT NULL DEFAULT now(),
  version text NOT NULL,
  host text NOT NULL,
  says text[] NOT NULL DEFAULT '{}' -- what keeps it from delivering
) WITH (fillfactor = 25);

-- The exceptions: what an answer has set aside, what waits behind it, what was given up. Empty when all is well.
CREATE TABLE {schema}.hold (
  seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  route text NOT NULL,
  lane int2 NOT NULL,
  ids bigint[] NOT NULL CHECK (cardinality(ids) > 0),
  id bigint NOT NULL GENERATED ALWAYS AS (ids[1]) STORED,
  generation integer NOT NULL DEFAULT 0,
  key text,
  state text NOT NULL CHECK (state IN ('retry', 'waiting', 'blocked', 'dead', 'skipped', 'resolved')),
  edition integer NOT NULL DEFAULT 1,
  attempts integer NOT NULL DEFAULT 0,
  unknowns integer NOT NULL DEFAULT 0,
  next_attempt_at timestamptz,
  error text NOT NULL DEFAULT '',
  ahead boolean NOT NULL DEFAULT false,
  held_at timestamptz NOT NULL DEFAULT now(),
  changed_at timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX hold_live ON {schema}.hold (route, lane, seq) WHERE state IN ('retry', 'waiting', 'blocked') OR ahead;
CREATE INDEX hold_id ON {schema}.hold (id, generation);
CREATE INDEX hold_key ON {schema}.hold (route, lane, key);
CREATE INDEX hold_state ON {schema}.hold (state, seq);

CREATE TABLE {schema}.kept (LIKE {schema}.message INCLUDING GENERATED);
ALTER TABLE {schema}.kept ADD PRIMARY KEY (id);
CREATE INDEX kept_message_id ON {schema}.kept (message_id);

CREATE TABLE {schema}.scheduled (
  id bigint GENERATED ALWAYS AS IDENTITY,
  due timestamptz NOT NULL,
  message_id uuid NOT NULL,
  key text,
  aggregate text NOT NULL,
  type text NOT NULL,
  payload bytea NOT NULL,
  topic text,
  version integer,
  sequence bigint,
  content_type text,
  encoding text,
  headers json,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (due, id)
);
CREATE INDEX scheduled_message_id ON {schema}.scheduled (message_id);

CREATE TABLE {schema}.unique_key (
  key text PRIMARY KEY,
  message_id uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX unique_key_created_at ON {schema}.unique_key (created_at);

CREATE TABLE {schema}.chore (
  name text PRIMARY KEY,
  judged bigint NOT NULL DEFAULT 0,
  value bigint, -- the sequence's value, read before `mark` was drawn
  mark xid8
);
INSERT INTO {schema}.chore (name) VALUES ('scheduled'), ('unrouted');

CREATE TABLE {schema}.audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT now(),
  who text NOT NULL,
  host text NOT NULL,
  action text NOT NULL,
  why text NOT NULL DEFAULT '',
  detail json NOT NULL
);
