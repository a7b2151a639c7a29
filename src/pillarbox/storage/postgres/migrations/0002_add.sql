-- The contract for every language: SELECT {schema}.add(aggregate => ..., type => ..., payload => ...).
-- Arguments are written `add.name`, columns plainly.

-- A cast that fails says no; an exception block is the only way to ask.
CREATE FUNCTION {schema}.is_json(payload bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  RETURN convert_from(payload, 'UTF8')::json IS NOT NULL;
EXCEPTION WHEN others THEN
  RETURN false;
END $$;

-- What would be refused from Python is refused here, with the same limits.
CREATE FUNCTION {schema}.check_text(field text, value text, longest integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF value = '' THEN
    RAISE EXCEPTION '% is empty', field USING ERRCODE = 'invalid_parameter_value';
  ELSIF field <> 'unique_key' AND value ~ E'[\\r\\n]' THEN
    RAISE EXCEPTION '% has a line break', field USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(value) > longest THEN
    RAISE EXCEPTION '% has % bytes; at most % are possible', field, octet_length(value), longest
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
END $$;

CREATE FUNCTION {schema}.check_headers(headers jsonb) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
  header record;
  size integer := 0;
BEGIN
  IF headers IS NULL THEN
    RETURN 0;
  ELSIF jsonb_typeof(headers) <> 'object' THEN
    RAISE EXCEPTION 'headers must be a JSON object' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  FOR header IN SELECT key, value, value #>> '{}' AS text FROM jsonb_each(headers) LOOP
    IF jsonb_typeof(header.value) <> 'string' OR header.text ~ E'[\\r\\n]' THEN
      RAISE EXCEPTION 'the value of header % must be a string without line breaks', quote_literal(header.key)
        USING ERRCODE = 'invalid_parameter_value';
    ELSIF header.key !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$' THEN
      RAISE EXCEPTION '% cannot be the name of a header', quote_literal(header.key)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Use letters, digits and the signs HTTP allows.';
    ELSIF lower(header.key) IN ('id', 'type', 'aggregate', 'content-type', 'version', 'sequence', 'content-encoding',
        'generation') OR lower(header.key) LIKE 'pillarbox-%' THEN
      RAISE EXCEPTION 'the header % is the record''s own', quote_literal(header.key)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Give it another name.';
    END IF;
    size := size + octet_length(header.key) + octet_length(header.text);
  END LOOP;
  RETURN size;
END $$;

-- Who was first: null when these are free, and claimed from now on. A twin waits for the first one's commit, and the
-- next statement of a volatile function sees what it committed.
CREATE FUNCTION {schema}.claim(unique_key text, own_id uuid, mine uuid, on_duplicate text) RETURNS uuid
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  wanted text;
  first uuid;
BEGIN
  FOREACH wanted IN ARRAY ARRAY[claim.unique_key, 'id:' || own_id] LOOP
    CONTINUE WHEN wanted IS NULL;
    LOOP
      INSERT INTO {schema}.unique_key (key, message_id) VALUES (wanted, mine) ON CONFLICT (key) DO NOTHING;
      EXIT WHEN FOUND;
      SELECT message_id INTO first FROM {schema}.unique_key WHERE key = wanted;
      IF FOUND AND on_duplicate = 'raise' THEN
        RAISE EXCEPTION '% was added before', quote_literal(wanted) USING ERRCODE = 'unique_violation';
      ELSIF FOUND THEN
        RETURN first;
      END IF;
    END LOOP;
  END LOOP;
  RETURN NULL;
END $$;

-- What all forms come to. `unlike_json` is the content type of a payload that does not parse.
CREATE FUNCTION {schema}.append(
  aggregate text, type text, payload bytea, key text, topic text, version integer, sequence bigint, headers jsonb,
  content_type text, id uuid, unique_key text, on_duplicate text, deliver_at timestamptz, max_message integer,
  unlike_json text, claimed boolean DEFAULT false
) RETURNS uuid LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  mine uuid := coalesce(append.id, {schema}.uuid7());
  kind text := append.content_type;
  first uuid;
  size integer;
BEGIN
  IF append.aggregate IS NULL OR append.type IS NULL OR append.payload IS NULL THEN
    RAISE EXCEPTION 'aggregate, type and payload must not be null' USING ERRCODE = 'null_value_not_allowed';
  ELSIF append.on_duplicate IS NULL OR append.on_duplicate NOT IN ('ignore', 'raise') THEN
    RAISE EXCEPTION 'on_duplicate must be ''ignore'' or ''raise''' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM {schema}.check_text('aggregate', append.aggregate, 1000), {schema}.check_text('type', append.type, 1000),
    {schema}.check_text('topic', append.topic, 1000), {schema}.check_text('content_type', kind, 1000),
    {schema}.check_text('unique_key', append.unique_key, 2000);
  IF octet_length(append.key) > 2000 THEN
    RAISE EXCEPTION 'key has % bytes; at most 2000 are possible', octet_length(append.key)
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  size := octet_length(append.payload) + coalesce(octet_length(append.key), 0)
    + {schema}.check_headers(append.headers);
  IF size > append.max_message THEN
    RAISE EXCEPTION 'the message has % bytes; the limit is %', size, append.max_message
      USING ERRCODE = 'program_limit_exceeded', HINT = 'Store what is large elsewhere and send a reference to it.';
  END IF;
  IF kind IS NULL AND NOT {schema}.is_json(append.payload) THEN
    kind := append.unlike_json;
  END IF;
  IF NOT append.claimed AND (append.unique_key IS NOT NULL OR append.id IS NOT NULL) THEN
    first := {schema}.claim(append.unique_key, append.id, mine, append.on_duplicate);
    IF first IS NOT NULL THEN
      RETURN first;
    END IF;
  END IF;
  IF append.deliver_at > clock_timestamp() THEN
    INSERT INTO {schema}.scheduled
      (due, message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers)
    VALUES (append.deliver_at, mine, append.key, append.aggregate, append.type, append.payload, append.topic,
      append.version, append.sequence, nullif(kind, 'application/json'), nullif(append.headers, '{}')::json);
  ELSE
    INSERT INTO {schema}.message
      (message_id, key, aggregate, type, payload, topic, version, sequence, content_type, headers)
    VALUES (mine, append.key, append.aggregate, append.type, append.payload, append.topic,
      append.version, append.sequence, nullif(kind, 'application/json'), nullif(append.headers, '{}')::json);
  END IF;
  RETURN mine;
END $$;

CREATE FUNCTION {schema}.add(
  aggregate text, type text, payload text, key text DEFAULT NULL, topic text DEFAULT NULL,
  version integer DEFAULT NULL, sequence bigint DEFAULT NULL, headers jsonb DEFAULT NULL,
  content_type text DEFAULT NULL, id uuid DEFAULT NULL, unique_key text DEFAULT NULL,
  on_duplicate text DEFAULT 'ignore', deliver_at timestamptz DEFAULT NULL, max_message integer DEFAULT 900000
) RETURNS uuid LANGUAGE sql AS $$
  SELECT {schema}.append(add.aggregate, add.type, convert_to(add.payload, 'UTF8'), add.key, add.topic, add.version,
    add.sequence, add.headers, add.content_type, add.id, add.unique_key, add.on_duplicate, add.deliver_at,
    add.max_message, 'text/plain; charset=utf-8')
$$;

CREATE FUNCTION {schema}.add(
  aggregate text, type text, payload jsonb, key text DEFAULT NULL, topic text DEFAULT NULL,
  version integer DEFAULT NULL, sequence bigint DEFAULT NULL, headers jsonb DEFAULT NULL,
  content_type text DEFAULT NULL, id uuid DEFAULT NULL, unique_key text DEFAULT NULL,
  on_duplicate text DEFAULT 'ignore', deliver_at timestamptz DEFAULT NULL, max_message integer DEFAULT 900000
) RETURNS uuid LANGUAGE sql AS $$
  SELECT {schema}.append(add.aggregate, add.type, convert_to(add.payload::text, 'UTF8'), add.key, add.topic, add.version,
    add.sequence, add.headers, coalesce(add.content_type, 'application/json'), add.id, add.unique_key,
    add.on_duplicate, add.deliver_at, add.max_message, 'application/json')
$$;

CREATE FUNCTION {schema}.add(
  aggregate text, type text, payload bytea, key text DEFAULT NULL, topic text DEFAULT NULL,
  version integer DEFAULT NULL, sequence bigint DEFAULT NULL, headers jsonb DEFAULT NULL,
  content_type text DEFAULT NULL, id uuid DEFAULT NULL, unique_key text DEFAULT NULL,
  on_duplicate text DEFAULT 'ignore', deliver_at timestamptz DEFAULT NULL, max_message integer DEFAULT 900000
) RETURNS uuid LANGUAGE sql AS $$
  SELECT {schema}.append(add.aggregate, add.type, add.payload, add.key, add.topic, add.version,
    add.sequence, add.headers, add.content_type, add.id, add.unique_key, add.on_duplicate, add.deliver_at,
    add.max_message, 'application/octet-stream')
$$;

-- A batch: an array of objects with the arguments of `add` as fields. `payload` is any JSON value and is kept as it is
-- written; `payload_text` and `payload_base64` are for the rest. Keys are claimed in sorted order, so that two batches
-- do not lock each other out; the messages follow in the array's order.
CREATE FUNCTION {schema}.add_many(messages json, max_message integer DEFAULT 900000) RETURNS SETOF uuid
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  given json[];
  each json;
  firsts uuid[];
  drawn uuid[];
  n integer;
  unknown text;
BEGIN
  SELECT array_agg(value ORDER BY ordinality) INTO given
  FROM json_array_elements(add_many.messages) WITH ORDINALITY AS m (value, ordinality);
  SELECT min(name) INTO unknown FROM unnest(given) AS m (value), json_object_keys(m.value) AS name
  WHERE name NOT IN ('aggregate', 'type', 'payload', 'payload_text', 'payload_base64', 'key', 'topic', 'version',
    'sequence', 'headers', 'content_type', 'id', 'unique_key', 'on_duplicate', 'deliver_at');
  IF unknown IS NOT NULL THEN
    RAISE EXCEPTION 'a message has no %', quote_literal(unknown) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  FOR n IN
    SELECT place FROM unnest(given) WITH ORDINALITY AS m (value, place)
    ORDER BY value ->> 'unique_key' COLLATE "C", lower(value ->> 'id') COLLATE "C", place
  LOOP
    drawn[n] := coalesce((given[n] ->> 'id')::uuid, {schema}.uuid7());
    firsts[n] := {schema}.claim(given[n] ->> 'unique_key', (given[n] ->> 'id')::uuid, drawn[n],
      coalesce(given[n] ->> 'on_duplicate', 'ignore'));
  END LOOP;
  FOR n IN SELECT generate_subscripts(given, 1) LOOP
    each := given[n];
    IF firsts[n] IS NULL THEN
      PERFORM {schema}.append(
        each ->> 'aggregate', each ->> 'type',
        coalesce(convert_to(each ->> 'payload_text', 'UTF8'), decode(each ->> 'payload_base64', 'base64'),
          convert_to((each -> 'payload')::text, 'UTF8')),
        each ->> 'key', each ->> 'topic', (each ->> 'version')::integer, (each ->> 'sequence')::bigint,
        (each ->> 'headers')::jsonb,
        coalesce(each ->> 'content_type', CASE WHEN each -> 'payload' IS NOT NULL THEN 'application/json' END),
        drawn[n], NULL, coalesce(each ->> 'on_duplicate', 'ignore'), (each ->> 'deliver_at')::timestamptz,
        add_many.max_message,
        CASE WHEN each ->> 'payload_text' IS NULL THEN 'application/octet-stream' ELSE 'text/plain; charset=utf-8' END,
        true);
    END IF;
    RETURN NEXT coalesce(firsts[n], drawn[n]);
  END LOOP;
END $$;

-- A key is indexed where its message is held back, and an entry of a B-tree stays below a third of a page: a longer
-- one, from a bare INSERT, would stop its lane there instead of failing here.
ALTER TABLE {schema}.message ADD CONSTRAINT key_length CHECK (octet_length(key) <= 2000);
ALTER TABLE {schema}.scheduled ADD CONSTRAINT key_length CHECK (octet_length(key) <= 2000);
