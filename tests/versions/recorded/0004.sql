-- recorded 2026-11-30T04:13:47.382959+00:00
--
-- PostgreSQL database dump
--



SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: tenure; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA tenure;


--
-- Name: job_state; Type: TYPE; Schema: tenure; Owner: -
--

CREATE TYPE tenure.job_state AS ENUM (
    'pending',
    'running',
    'done',
    'dead',
    'cancelled'
);


--
-- Name: drop_partition(date); Type: FUNCTION; Schema: tenure; Owner: -
--

CREATE FUNCTION tenure.drop_partition(day date) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
declare
    today constant date := (clock_timestamp() at time zone 'UTC')::date;
    kept constant integer := (select greatest(7, max(q.retention)) from "tenure".queues q);
    place constant text := (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
                            where c.oid = '"tenure".archive'::regclass);
    name constant text := 'archive_' || to_char(day::timestamp, 'YYYYMMDD');
begin
    -- The bound below is for years that a name does not tell apart: of 2026 BC it would say 2026, too.
    if day is null or day not between date '2000-01-01' and today - kept - 1
       or not exists (select from pg_inherits i join pg_class c on c.oid = i.inhrelid
                      where i.inhparent = '"tenure".archive'::regclass and c.relname = name)
       or not pg_try_advisory_xact_lock(hashtextextended('tenure' || '.upkeep/' || place, 0)) then
        return false;
    end if;
    execute format('drop table %I.%I', place, name);
    return true;
exception when lock_not_available or undefined_table then
    return false;
end
$$;


--
-- Name: FUNCTION drop_partition(day date); Type: COMMENT; Schema: tenure; Owner: -
--

COMMENT ON FUNCTION tenure.drop_partition(day date) IS 'Drop the archive''s partition of a day that no queue wants.';


--
-- Name: enqueue(text, jsonb, text, interval, integer, text, timestamp with time zone, timestamp with time zone, jsonb, boolean); Type: FUNCTION; Schema: tenure; Owner: -
--

CREATE FUNCTION tenure.enqueue(kind text, payload jsonb DEFAULT '{}'::jsonb, key text DEFAULT NULL::text, delay interval DEFAULT NULL::interval, priority integer DEFAULT NULL::integer, queue text DEFAULT NULL::text, at timestamp with time zone DEFAULT NULL::timestamp with time zone, expires_at timestamp with time zone DEFAULT NULL::timestamp with time zone, headers jsonb DEFAULT NULL::jsonb, replace boolean DEFAULT NULL::boolean) RETURNS TABLE(id uuid, answer text, state text, result jsonb)
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    -- text df83bd75444652f5cd4d84d3db059c53
    select m.id, m.answer, m.state, m.result
    from "tenure".enqueue_many(
        enqueue.kind,
        jsonb_build_array(jsonb_build_object(
            'payload', enqueue.payload, 'key', enqueue.key, 'delay', extract(epoch from enqueue.delay),
            'priority', enqueue.priority, 'at', enqueue.at, 'expires_at', enqueue.expires_at,
            'headers', enqueue.headers, 'replace', enqueue.replace
        )),
        enqueue.queue
    ) m
$$;


--
-- Name: FUNCTION enqueue(kind text, payload jsonb, key text, delay interval, priority integer, queue text, at timestamp with time zone, expires_at timestamp with time zone, headers jsonb, replace boolean); Type: COMMENT; Schema: tenure; Owner: -
--

COMMENT ON FUNCTION tenure.enqueue(kind text, payload jsonb, key text, delay interval, priority integer, queue text, at timestamp with time zone, expires_at timestamp with time zone, headers jsonb, replace boolean) IS 'Enqueue a job. See docs/reference/sql.md of Tenure.';


--
-- Name: enqueue_many(text, jsonb, text); Type: FUNCTION; Schema: tenure; Owner: -
--

CREATE FUNCTION tenure.enqueue_many(kind text, jobs jsonb, queue text DEFAULT NULL::text) RETURNS TABLE(n integer, id uuid, answer text, state text, result jsonb)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
#variable_conflict use_column
-- text 4a08e25eb257c17309688abae927db22
<<args>>
declare
    -- what the statements take
    queue text;
    kind text;
    version smallint;
    fingerprint_kind text;
    max_attempts smallint;
    key_ttl float8;
    max_bytes constant integer := 262144;
    id uuid[];
    payload text[];
    priority smallint[];
    delay float8[];
    at timestamptz[];
    expires_in constant float8[] := '{}';
    expires_at timestamptz[];
    key text[];
    headers text[];
    wants_result constant bool[] := '{}';
    -- what they have told, by place
    ids uuid[];
    answers text[];
    states text[];
    results jsonb[];
    -- this round: jobs, their places, and whether they replace
    round jsonb := coalesce(enqueue_many.jobs, '[]');
    places integer[];
    replacing bool := false;
    told record;
    done uuid[] := '{}';
    place integer;
    counted integer;
    wrong text[];
begin
    if jsonb_typeof(round) <> 'array' then
        raise exception using errcode = 'TN002', message = 'The jobs are no JSON array.',
            hint = 'Write [{"payload": {...}, "key": "..."}, ...].';
    end if;

    -- The kind that runs jobs of this name now. Rows of a renamed kind stay, so a name may be that of one kind and an older
    -- name of another; the one that names the other as its elder is the newer.
    with newer as (
        select k.* from "tenure".kinds k
        where enqueue_many.kind = any(k.aliases)
          and k.name <> all(array(
              select a.alias from "tenure".kinds o, unnest(o.aliases) as a(alias) where o.name = enqueue_many.kind
          ))
    ),
    found as (
        select w.* from newer w
        union all
        select k.* from "tenure".kinds k where k.name = enqueue_many.kind and not exists (select from newer)
    )
    select f.name, f.version, coalesce(enqueue_many.queue, f.queue), coalesce(f.aliases[1], f.name),
           coalesce((f.policy ->> 'max_attempts')::smallint, 10), coalesce((f.policy ->> 'key_ttl')::float8, 604800)
    into args.kind, args.version, args.queue, args.fingerprint_kind, args.max_attempts, args.key_ttl
    from found f
    order by f.version desc, f.name
    limit 1;
    if not found then
        raise exception using errcode = 'TN001',
            message = format('Nobody registered a kind %L.', left(enqueue_many.kind, 120)),
            hint = 'Workers register their kinds, and so does "tenure migrate module:app". This is a mistake of the program'
                ' and ends the transaction; a conflict is an answer.';
    end if;
    if args.queue !~ '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$' then
        raise exception using errcode = 'TN002', message = format('%L cannot be the name of a queue.', left(args.queue, 120)),
            hint = 'Use letters, digits, underscore, dot, colon and hyphen, at most 100, beginning with a letter or digit.';
    end if;

    counted := jsonb_array_length(round);
    places := array(select generate_series(1, args.counted));
    begin
        select w.place, w.wrong into args.place, args.wrong
        from (
            select j.place, case
                when jsonb_typeof(j.job) <> 'object' then
                    array['It is no object.', 'Write {"payload": {...}, "key": "..."}.']
                when exists (select from jsonb_object_keys(j.job) as o(name) where o.name <> all(
                         '{payload,key,delay,at,priority,expires_at,headers,replace}'::text[])) then
                    array['It has a member that is not known: '
                              || (select left(min(o.name), 100) from jsonb_object_keys(j.job) as o(name) where o.name <> all(
                                  '{payload,key,delay,at,priority,expires_at,headers,replace}'::text[])) || '.',
                          'It may have payload, key, delay, at, priority, expires_at, headers and replace.']
                when jsonb_typeof(m.payload) <> 'object' then
                    array['The payload is no JSON object.', 'Write {"name": value, ...}, with the names of the handler''s'
                          ' parameters.']
                when jsonb_typeof(m.key) <> 'string' or octet_length(m.key #>> '{}') not between 1 and 500 then
                    array['The idempotency key is no text of 1 to 500 bytes.', 'Hash what is longer; leave it out, or null,'
                          ' for a job without one.']
                when jsonb_typeof(m.priority) <> 'number' or m.priority::text !~ '^[0-9]$' then
                    array['The priority is no whole number from 0 to 9.', 'Use 0 (highest) to 9.']
                when jsonb_typeof(m.delay) not in ('number', 'string') or m.seconds not between 0 and 315360000 then
                    array['The delay is no time from 0 to 3650 days.', 'Write an interval, or seconds.']
                when m.at is not null and m.seconds > 0 then
                    array['A job cannot have both a delay and a moment.', 'Give delay or at.']
                when jsonb_typeof(m.at) <> 'string' or m.at #>> '{}' !~ m.moment
                     or (m.at #>> '{}')::timestamptz not between m.earliest and m.latest then
                    array['at is no moment with a time zone, from the year 2000 to 3650 days from now.',
                          'Write 2030-01-31T12:00:00Z or ...+02:00.']
                when jsonb_typeof(m.expires_at) <> 'string' or m.expires_at #>> '{}' !~ m.moment
                     or (m.expires_at #>> '{}')::timestamptz not between m.earliest and m.latest then
                    array['expires_at is no moment with a time zone, from the year 2000 to 3650 days from now.',
                          'Write 2030-01-31T12:00:00Z or ...+02:00.']
                when jsonb_typeof(m.headers) <> 'object' or octet_length(m.headers::text) > 16384 then
                    array['The headers are no JSON object of at most 16384 bytes.',
                          'Headers are for metadata; what the handler works on belongs into the payload.']
                when jsonb_typeof(m.replace) <> 'boolean' then
                    array['replace is neither true nor false.', 'Use true for a job that may change the one its key names.']
                when m.replace::bool and m.key is null then
                    array['A job without a key replaces nothing.', 'Give the key of the job that is to be replaced.']
            end as wrong
            from jsonb_array_elements(round) with ordinality as j(job, place)
            cross join lateral (
                select coalesce(j.job -> 'payload', '{}') as payload, nullif(j.job -> 'key', 'null') as key,
                       nullif(j.job -> 'priority', 'null') as priority, nullif(j.job -> 'delay', 'null') as delay,
                       case jsonb_typeof(j.job -> 'delay')
                           when 'number' then (j.job ->> 'delay')::numeric
                           when 'string' then extract(epoch from (j.job ->> 'delay')::interval)
                       end as seconds,
                       nullif(j.job -> 'at', 'null') as at, nullif(j.job -> 'expires_at', 'null') as expires_at,
                       nullif(j.job -> 'headers', 'null') as headers, nullif(j.job -> 'replace', 'null') as replace,
                       '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$'
                           as moment,
                       timestamptz '2000-01-01 00:00:00+00' as earliest,
                       clock_timestamp() + make_interval(secs => 315360000) as latest
            ) m
        ) w
        where w.wrong is not null
        order by w.place
        limit 1;
    exception when invalid_datetime_format or datetime_field_overflow or interval_field_overflow
        or invalid_time_zone_displacement_value then
        wrong := array[initcap(left(sqlerrm, 1)) || substr(sqlerrm, 2) || '.', 'Write 2030-01-31T12:00:00Z, or 5 minutes.'];
    end;
    if wrong is not null then
        raise exception using errcode = 'TN002',
            message = case when counted > 1 and place is not null then format('Job %s: ', place) else '' end || wrong[1],
            hint = wrong[2];
    end if;

    loop
        select array_agg(j.id), array_agg(j.payload), array_agg(j.priority), array_agg(j.delay), array_agg(j.at),
               array_agg(j.expires_at), array_agg(j.key), array_agg(j.headers)
        into args.id, args.payload, args.priority, args.delay, args.at, args.expires_at, args.key, args.headers
        from (
            -- a UUIDv7: milliseconds since 1970 laid over a random UUIDv4, whose version 4 becomes 7 by two bits
            select encode(set_bit(set_bit(overlay(
                       uuid_send(gen_random_uuid())
                       placing substr(int8send(floor(extract(epoch from clock_timestamp()) * 1000)::bigint), 3) from 1 for 6
                   ), 52, 1), 53, 1), 'hex')::uuid as id,
                   coalesce(j.job -> 'payload', '{}')::text as payload,
                   coalesce((j.job ->> 'priority')::smallint, 5::smallint) as priority,
                   case jsonb_typeof(j.job -> 'delay')
                       when 'number' then (j.job ->> 'delay')::float8
                       when 'string' then extract(epoch from (j.job ->> 'delay')::interval)::float8
                       else 0
                   end as delay,
                   (j.job ->> 'at')::timestamptz as at, (j.job ->> 'expires_at')::timestamptz as expires_at,
                   j.job ->> 'key' as key, j.job ->> 'headers' as headers
            from jsonb_array_elements(round) with ordinality as j(job, ord)
            order by j.ord
        ) j;
        exit when replacing;

        if ids is null then  -- what nothing is told about is simply new
            ids := args.id;
            answers := array_fill('new'::text, array[counted]);
            states := array_fill('pending'::text, array[counted]);
        end if;
        for told in
-- accept: (nothing) -> pending. Arrays in, in one statement and one commit. Answers, by their places, for all jobs but
-- those without a key that are simply new: of ten thousand there is nothing to say.
--
-- Why it is safe: a key is won by the insert into keys alone (ON CONFLICT DO NOTHING waits for an open transaction that
-- inserts or changes the same key's row, and locks nothing of a row that is there), and a keyed job is inserted only by the
-- winner. Expired keys are locked and new ones inserted in order of the key, so two calls cannot wait for each other. An
-- expired key is removed in the same statement: two that find it expired meet at its row, and the second finds the first
-- one's new row. A key that another session committed after this statement began is not visible to it: answer 'unseen',
-- and the caller looks again. Keys and jobs are looked up one by one, laterally or by an array: a join would let the planner
-- read all of them as long as it knows little of the table.
with
asked as materialized (
    select i.*, i.payload_text::jsonb as payload,
           case when octet_length(i.payload_text::jsonb::text) > args.max_bytes then 'too_large'
                when i.wants_result and i.key is null and not (coalesce((select q.retention from "tenure".queues q where q.name = args.queue), 7) > 0) then 'no_result'
           end as refused,
           case when i.key is not null then
               sha256(convert_to(args.fingerprint_kind || e'\n' || i.payload_text::jsonb::text, 'UTF8'))
           end as fingerprint
    from unnest(
        args.id::uuid[], args.payload::text[], args.priority::smallint[], args.delay::float8[], args.at::timestamptz[],
        args.expires_in::float8[], args.expires_at::timestamptz[], args.key::text[], args.headers::text[],
        args.wants_result::bool[]
    ) with ordinality
        as i(id, payload_text, priority, delay, at, expires_in, expires_at, key, headers, wants_result, ord)
),
policy as materialized (
    select coalesce((max(k.operator ->> 'max_attempts'))::smallint, args.max_attempts::smallint) as max_attempts,
           make_interval(secs => coalesce((max(k.operator ->> 'key_ttl'))::float8, args.key_ttl::float8)) as key_ttl,
           clock_timestamp() as now
    from "tenure".kinds k
    where k.name = args.kind and k.version = args.version
),
first as materialized (
    select distinct on (a.key) a.key, a.id, a.fingerprint
    from asked a
    where a.key is not null and a.refused is null
    order by a.key, a.ord
),
expired as materialized (
    select k.key
    from first f
    cross join policy p
    cross join lateral (
        select k.key from "tenure".keys k
        where k.queue = args.queue and k.key = f.key and k.expires_at <= p.now
        for update
    ) k
),
lapsed as (
    delete from "tenure".keys k
    where k.queue = args.queue and k.key = any(array(select e.key from expired e))
    returning k.queue, k.queue || '/' || k.kind || '/' || k.key as dedup_key
),
forgotten as (
    delete from "tenure".dedup d using lapsed l where d.queue = l.queue and d.dedup_key = l.dedup_key
),
won as (
    insert into "tenure".keys (queue, key, kind, fingerprint, job_id, ttl)
    select args.queue, f.key, args.kind, f.fingerprint, f.id, p.key_ttl
    from first f, policy p
    where (select count(*) from lapsed) >= 0  -- the lapsed row goes before the new one comes
    order by f.key
    on conflict (queue, key) do nothing
    returning key, job_id, fingerprint
),
accepted as (
    insert into "tenure".jobs (queue, id, kind, version, priority, max_attempts, available_at, accepted_at, expires_at,
                         key, payload, headers)
select args.queue, a.id, args.kind, args.version, a.priority, p.max_attempts,
       greatest(p.now, coalesce(a.at, p.now + make_interval(secs => a.delay))), p.now,
       coalesce(a.expires_at, p.now + make_interval(secs => a.expires_in)),
       a.key, a.payload, a.headers::jsonb
from asked a, policy p
where a.refused is null
      and (a.key is null or exists (select from won w where w.job_id = a.id))
    order by a.ord
    on conflict (id, queue) do nothing  -- a repeat under the same id
    returning id
)
select a.ord,
       coalesce(w.job_id, k.job_id, a.id) as id,
       case
           when a.refused is not null then a.refused
           when w.job_id = a.id then 'new'
           when a.key is null then 'same'
           when coalesce(w.fingerprint, k.fingerprint) = a.fingerprint then 'same'
           when coalesce(w.fingerprint, k.fingerprint) <> a.fingerprint then 'conflict'
           else 'unseen'
       end as answer,
       case when w.key is not null then 'pending'
            else coalesce(k.state::text, j.state::text, 'pending') end as state,
       case when w.key is null then k.result::text end as result,
       encode(coalesce(w.fingerprint, k.fingerprint), 'hex') as held,
       encode(a.fingerprint, 'hex') as given
from asked a
left join won w on w.key = a.key
left join accepted c on c.id = a.id and a.key is null  -- simply new
cross join policy p
left join lateral (
    select k.job_id, k.fingerprint, k.state, k.result from "tenure".keys k
    where k.queue = args.queue and k.key = a.key and w.key is null and (k.expires_at is null or k.expires_at > p.now)
    limit 1
) k on true
left join lateral (
    select j.state from "tenure".jobs j where j.id = coalesce(k.job_id, a.id) and j.queue = args.queue and w.key is null limit 1
) j on true
where c.id is null and (
    -- Evaluated once, and also where no row is answered: it looks at nothing of them.
    -- Wakes the worker that is on call for the queue q.name, if there is one, when this transaction commits. Whoever is on call
-- holds a lock, so a lock that can be shared tells that nobody is; it is given back in the same breath, with nothing in
-- between that could fail or be cancelled, and two that ask at once do not see each other. Always true.
select case when pg_try_advisory_lock_shared(hashtextextended('"tenure".' || q.name, 0)) then pg_advisory_unlock_shared(hashtextextended('"tenure".' || q.name, 0))
            else pg_notify('tenure_' || to_hex(hashtextextended('"tenure".' || q.name, 0)), '') is not null end
    from (select args.queue::text) as q(name)
    where exists (select from accepted)
      and exists (select from asked a where a.at is null and coalesce(a.delay, 0) <= 0 or a.at <= clock_timestamp())
) is not false
order by a.ord
        loop
            place := places[told.ord];
            ids[place] := told.id;
            answers[place] := told.answer;
            states[place] := told.state;
            results[place] := told.result::jsonb;
        end loop;

        select array_agg(p.place), jsonb_agg(enqueue_many.jobs -> p.place - 1) into args.places, args.round
        from (select p.place from unnest(places) with ordinality as p(place, ord) where answers[p.place] = 'unseen'
              order by p.ord) p;
        continue when places is not null;

        select array_agg(p.place), jsonb_agg(enqueue_many.jobs -> p.place - 1) into args.places, args.round
        from (select p.place from generate_subscripts(answers, 1) as p(place)
              where answers[p.place] in ('same', 'conflict') and (enqueue_many.jobs -> p.place - 1 ->> 'replace')::bool
              order by p.place) p;
        exit when places is null;
        replacing := true;
    end loop;

    if replacing then
        id := array(select ids[p.place] from unnest(places) with ordinality as p(place, ord) order by p.ord);
        for told in
-- replace: pending -> pending with other content (debounce), where the job was never claimed.
--
-- Why it is safe: the job's row is locked, in order of id, before it is judged, so a claim, a cancellation or another
-- replacement that was under way has ended; jobs first, keys after them, like every settlement. The key's row must still
-- be this job's, or nothing is changed. What cannot be changed is left out of the answer; nothing of it is touched.
with
given as materialized (
    select distinct on (i.id) i.*, i.payload_text::jsonb as payload,
           sha256(convert_to(args.fingerprint_kind || e'\n' || i.payload_text::jsonb::text, 'UTF8')) as fingerprint
    from unnest(
        args.id::uuid[], args.payload::text[], args.delay::float8[], args.at::timestamptz[], args.expires_in::float8[],
        args.expires_at::timestamptz[], args.key::text[], args.headers::text[]
    ) with ordinality as i(id, payload_text, delay, at, expires_in, expires_at, key, headers, ord)
    order by i.id, i.ord desc
),
locked as materialized (
    select j.id, j.key, j.kind, j.state, j.claims
    from "tenure".jobs j
    where j.queue = args.queue and j.id = any(args.id::uuid[])
    order by j.id
    for update
),
mine as materialized (
    select g.*, clock_timestamp() as now
    from given g
    join locked l on l.id = g.id and l.key = g.key
    where l.state = 'pending' and l.claims = 0
      and (l.kind in (args.kind, args.fingerprint_kind)
           or l.kind = any(array(select unnest(k.aliases) from "tenure".kinds k where k.name = args.kind)))
),
keys as (
    update "tenure".keys k set fingerprint = m.fingerprint
    from mine m
    where k.queue = args.queue and k.key = m.key and k.job_id = m.id
    returning m.*
),
changed as (
    update "tenure".jobs j
    set payload = m.payload, version = args.version, headers = m.headers::jsonb,
        available_at = greatest(m.now, coalesce(m.at, m.now + make_interval(secs => m.delay))),
        expires_at = coalesce(m.expires_at, m.now + make_interval(secs => m.expires_in))
    from keys m
    where j.queue = args.queue and j.id = m.id
    returning j.id, m.at is null and coalesce(m.delay, 0) <= 0 or m.at <= m.now as due
)
select id
from changed
where (
    -- Wakes the worker that is on call for the queue q.name, if there is one, when this transaction commits. Whoever is on call
-- holds a lock, so a lock that can be shared tells that nobody is; it is given back in the same breath, with nothing in
-- between that could fail or be cancelled, and two that ask at once do not see each other. Always true.
select case when pg_try_advisory_lock_shared(hashtextextended('"tenure".' || q.name, 0)) then pg_advisory_unlock_shared(hashtextextended('"tenure".' || q.name, 0))
            else pg_notify('tenure_' || to_hex(hashtextextended('"tenure".' || q.name, 0)), '') is not null end
    from (select args.queue::text) as q(name)
    where exists (select from changed where due)
) is not false
        loop
            done := done || told.id;
        end loop;
        foreach place in array places loop
            if ids[place] = any(done) then
                answers[place] := 'replaced';
                states[place] := 'pending';
            else
                answers[place] := 'conflict';
            end if;
        end loop;
    end if;

    return query
    select u.n::integer, case when u.answer <> 'too_large' then u.id end, u.answer,
           case when u.answer <> 'too_large' then u.state end, u.result
    from unnest(ids, answers, states, results) with ordinality as u(id, answer, state, result, n)
    order by u.n;
end
$_$;


--
-- Name: FUNCTION enqueue_many(kind text, jobs jsonb, queue text); Type: COMMENT; Schema: tenure; Owner: -
--

COMMENT ON FUNCTION tenure.enqueue_many(kind text, jobs jsonb, queue text) IS 'Enqueue jobs of one kind; a row for each, in their order. See docs/reference/sql.md of Tenure.';


--
-- Name: follow(uuid[]); Type: FUNCTION; Schema: tenure; Owner: -
--

CREATE FUNCTION tenure.follow(ids uuid[]) RETURNS TABLE(id uuid, state text, result jsonb)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select g.id, coalesce(a.state, d.state, j.state)::text, a.result
    from unnest(follow.ids) as g(id)
    left join lateral (select x.state, x.result from "tenure".archive x where x.id = g.id limit 1) a on true
    left join lateral (select x.state from "tenure".dead x where x.id = g.id limit 1) d on true
    left join lateral (select x.state from "tenure".jobs x where x.id = g.id limit 1) j on true
$$;


--
-- Name: FUNCTION follow(ids uuid[]); Type: COMMENT; Schema: tenure; Owner: -
--

COMMENT ON FUNCTION tenure.follow(ids uuid[]) IS 'Where jobs are: state and result, by id.';


--
-- Name: make_partition(date); Type: FUNCTION; Schema: tenure; Owner: -
--

CREATE FUNCTION tenure.make_partition(day date) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
declare
    today constant date := (clock_timestamp() at time zone 'UTC')::date;
    place constant text := (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
                            where c.oid = '"tenure".archive'::regclass);
begin
    if day is null or day not between today and today + 31
       or not pg_try_advisory_xact_lock(hashtextextended('tenure' || '.upkeep/' || place, 0)) then
        return false;
    end if;
    execute format('create table %I.%I partition of %I.archive for values from (%L) to (%L)',
                   place, 'archive_' || to_char(day::timestamp, 'YYYYMMDD'), place,
                   to_char(day::timestamp, 'YYYY-MM-DD') || ' 00:00:00+00',
                   to_char((day + 1)::timestamp, 'YYYY-MM-DD') || ' 00:00:00+00');
    return true;
exception when lock_not_available or duplicate_table or check_violation then
    return false;
end
$$;


--
-- Name: FUNCTION make_partition(day date); Type: COMMENT; Schema: tenure; Owner: -
--

COMMENT ON FUNCTION tenure.make_partition(day date) IS 'Make the archive''s partition of a day. See docs/how-to/roles.md of Tenure.';


SET default_tablespace = '';

--
-- Name: archive; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.archive (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT archive_check CHECK (((state = 'cancelled'::tenure.job_state) = (reason IS NOT NULL))),
    CONSTRAINT archive_reason_check CHECK ((reason = ANY (ARRAY['asked'::text, 'expired'::text, 'discarded'::text]))),
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'cancelled'::tenure.job_state])))
)
PARTITION BY RANGE (ended_at);


SET default_table_access_method = heap;

--
-- Name: archive_20261130; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.archive_20261130 (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT archive_check CHECK (((state = 'cancelled'::tenure.job_state) = (reason IS NOT NULL))),
    CONSTRAINT archive_reason_check CHECK ((reason = ANY (ARRAY['asked'::text, 'expired'::text, 'discarded'::text]))),
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'cancelled'::tenure.job_state])))
);


--
-- Name: archive_20261201; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.archive_20261201 (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT archive_check CHECK (((state = 'cancelled'::tenure.job_state) = (reason IS NOT NULL))),
    CONSTRAINT archive_reason_check CHECK ((reason = ANY (ARRAY['asked'::text, 'expired'::text, 'discarded'::text]))),
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'cancelled'::tenure.job_state])))
);


--
-- Name: archive_20261202; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.archive_20261202 (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT archive_check CHECK (((state = 'cancelled'::tenure.job_state) = (reason IS NOT NULL))),
    CONSTRAINT archive_reason_check CHECK ((reason = ANY (ARRAY['asked'::text, 'expired'::text, 'discarded'::text]))),
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'cancelled'::tenure.job_state])))
);


--
-- Name: archive_20261203; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.archive_20261203 (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT archive_check CHECK (((state = 'cancelled'::tenure.job_state) = (reason IS NOT NULL))),
    CONSTRAINT archive_reason_check CHECK ((reason = ANY (ARRAY['asked'::text, 'expired'::text, 'discarded'::text]))),
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'cancelled'::tenure.job_state])))
);


--
-- Name: archive_20261204; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.archive_20261204 (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT archive_check CHECK (((state = 'cancelled'::tenure.job_state) = (reason IS NOT NULL))),
    CONSTRAINT archive_reason_check CHECK ((reason = ANY (ARRAY['asked'::text, 'expired'::text, 'discarded'::text]))),
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'cancelled'::tenure.job_state])))
);


--
-- Name: archive_20261205; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.archive_20261205 (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT archive_check CHECK (((state = 'cancelled'::tenure.job_state) = (reason IS NOT NULL))),
    CONSTRAINT archive_reason_check CHECK ((reason = ANY (ARRAY['asked'::text, 'expired'::text, 'discarded'::text]))),
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'cancelled'::tenure.job_state])))
);


--
-- Name: archive_20261206; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.archive_20261206 (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT archive_check CHECK (((state = 'cancelled'::tenure.job_state) = (reason IS NOT NULL))),
    CONSTRAINT archive_reason_check CHECK ((reason = ANY (ARRAY['asked'::text, 'expired'::text, 'discarded'::text]))),
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'cancelled'::tenure.job_state])))
);


--
-- Name: archive_20261207; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.archive_20261207 (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT archive_check CHECK (((state = 'cancelled'::tenure.job_state) = (reason IS NOT NULL))),
    CONSTRAINT archive_reason_check CHECK ((reason = ANY (ARRAY['asked'::text, 'expired'::text, 'discarded'::text]))),
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'cancelled'::tenure.job_state])))
);


--
-- Name: archive_default; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.archive_default (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT archive_check CHECK (((state = 'cancelled'::tenure.job_state) = (reason IS NOT NULL))),
    CONSTRAINT archive_reason_check CHECK ((reason = ANY (ARRAY['asked'::text, 'expired'::text, 'discarded'::text]))),
    CONSTRAINT archive_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'cancelled'::tenure.job_state])))
);


--
-- Name: dead; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.dead (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint NOT NULL,
    max_attempts smallint NOT NULL,
    deferrals integer NOT NULL,
    claims integer NOT NULL,
    releases integer NOT NULL,
    redrives integer NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    ended_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    reason text NOT NULL,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    result jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT dead_reason_check CHECK ((reason = ANY (ARRAY['permanent'::text, 'exhausted'::text, 'poison'::text, 'deferred_too_often'::text, 'shed'::text]))),
    CONSTRAINT dead_state_check CHECK ((state = 'dead'::tenure.job_state))
);


--
-- Name: dedup; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.dedup (
    queue text NOT NULL,
    dedup_key text NOT NULL,
    step text DEFAULT ''::text NOT NULL,
    job_id uuid NOT NULL,
    made_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    result jsonb
);


--
-- Name: jobs; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.jobs (
    queue text NOT NULL,
    id uuid NOT NULL,
    seq bigint NOT NULL,
    kind text NOT NULL,
    version smallint NOT NULL,
    state tenure.job_state DEFAULT 'pending'::tenure.job_state NOT NULL,
    priority smallint NOT NULL,
    attempts smallint DEFAULT 0 NOT NULL,
    max_attempts smallint NOT NULL,
    expiries smallint DEFAULT 0 NOT NULL,
    deaths smallint DEFAULT 0 NOT NULL,
    deferrals integer DEFAULT 0 NOT NULL,
    claims integer DEFAULT 0 NOT NULL,
    releases integer DEFAULT 0 NOT NULL,
    redrives integer DEFAULT 0 NOT NULL,
    suspect boolean DEFAULT false NOT NULL,
    cancel boolean DEFAULT false NOT NULL,
    available_at timestamp with time zone NOT NULL,
    accepted_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    lease_until timestamp with time zone,
    expires_at timestamp with time zone,
    token uuid,
    worker uuid,
    gate text,
    key text,
    key_queue text,
    key_kind text,
    payload jsonb NOT NULL,
    headers jsonb,
    history jsonb,
    first_claimed_at timestamp with time zone,
    CONSTRAINT jobs_check CHECK ((attempts <= max_attempts)),
    CONSTRAINT jobs_check1 CHECK (((state = 'running'::tenure.job_state) = (token IS NOT NULL))),
    CONSTRAINT jobs_check2 CHECK (((state = 'running'::tenure.job_state) = (lease_until IS NOT NULL))),
    CONSTRAINT jobs_check3 CHECK (((state = 'running'::tenure.job_state) OR ((attempts < max_attempts) AND (NOT cancel)))),
    CONSTRAINT jobs_max_attempts_check CHECK ((max_attempts > 0)),
    CONSTRAINT jobs_priority_check CHECK (((priority >= 0) AND (priority <= 9))),
    CONSTRAINT jobs_state_check CHECK ((state = ANY (ARRAY['pending'::tenure.job_state, 'running'::tenure.job_state])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0.05', fillfactor='50', vacuum_truncate='false');


--
-- Name: jobs_seq_seq; Type: SEQUENCE; Schema: tenure; Owner: -
--

ALTER TABLE tenure.jobs ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tenure.jobs_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: keys; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.keys (
    queue text NOT NULL,
    key text NOT NULL,
    kind text NOT NULL,
    fingerprint bytea NOT NULL,
    job_id uuid NOT NULL,
    ttl interval NOT NULL,
    state tenure.job_state,
    result jsonb,
    token uuid,
    expires_at timestamp with time zone,
    CONSTRAINT keys_check CHECK (((expires_at IS NOT NULL) = ((state IS NOT NULL) AND (state <> 'dead'::tenure.job_state)))),
    CONSTRAINT keys_fingerprint_check CHECK ((octet_length(fingerprint) = 32)),
    CONSTRAINT keys_state_check CHECK ((state = ANY (ARRAY['done'::tenure.job_state, 'dead'::tenure.job_state, 'cancelled'::tenure.job_state])))
);


--
-- Name: kinds; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.kinds (
    name text NOT NULL,
    version smallint NOT NULL,
    queue text NOT NULL,
    aliases text[] DEFAULT '{}'::text[] NOT NULL,
    effect boolean DEFAULT false NOT NULL,
    policy jsonb NOT NULL,
    operator jsonb DEFAULT '{}'::jsonb NOT NULL,
    arguments jsonb NOT NULL,
    registered_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT kinds_version_check CHECK ((version > 0))
);


--
-- Name: migrations; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    compatible boolean NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: queues; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.queues (
    name text NOT NULL,
    owner text,
    slo interval,
    paused boolean DEFAULT false NOT NULL,
    retention smallint,
    settings jsonb DEFAULT '{}'::jsonb NOT NULL,
    made_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT queues_retention_check CHECK (((retention >= 0) AND (retention <= 3650)))
);


--
-- Name: workers; Type: TABLE; Schema: tenure; Owner: -
--

CREATE TABLE tenure.workers (
    id uuid NOT NULL,
    name text NOT NULL,
    queues text[] NOT NULL,
    concurrency integer NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);


--
-- Name: archive_20261130; Type: TABLE ATTACH; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.archive ATTACH PARTITION tenure.archive_20261130 FOR VALUES FROM ('2026-11-30 00:00:00+00') TO ('2026-12-01 00:00:00+00');


--
-- Name: archive_20261201; Type: TABLE ATTACH; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.archive ATTACH PARTITION tenure.archive_20261201 FOR VALUES FROM ('2026-12-01 00:00:00+00') TO ('2026-12-02 00:00:00+00');


--
-- Name: archive_20261202; Type: TABLE ATTACH; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.archive ATTACH PARTITION tenure.archive_20261202 FOR VALUES FROM ('2026-12-02 00:00:00+00') TO ('2026-12-03 00:00:00+00');


--
-- Name: archive_20261203; Type: TABLE ATTACH; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.archive ATTACH PARTITION tenure.archive_20261203 FOR VALUES FROM ('2026-12-03 00:00:00+00') TO ('2026-12-04 00:00:00+00');


--
-- Name: archive_20261204; Type: TABLE ATTACH; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.archive ATTACH PARTITION tenure.archive_20261204 FOR VALUES FROM ('2026-12-04 00:00:00+00') TO ('2026-12-05 00:00:00+00');


--
-- Name: archive_20261205; Type: TABLE ATTACH; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.archive ATTACH PARTITION tenure.archive_20261205 FOR VALUES FROM ('2026-12-05 00:00:00+00') TO ('2026-12-06 00:00:00+00');


--
-- Name: archive_20261206; Type: TABLE ATTACH; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.archive ATTACH PARTITION tenure.archive_20261206 FOR VALUES FROM ('2026-12-06 00:00:00+00') TO ('2026-12-07 00:00:00+00');


--
-- Name: archive_20261207; Type: TABLE ATTACH; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.archive ATTACH PARTITION tenure.archive_20261207 FOR VALUES FROM ('2026-12-07 00:00:00+00') TO ('2026-12-08 00:00:00+00');


--
-- Name: archive_default; Type: TABLE ATTACH; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.archive ATTACH PARTITION tenure.archive_default DEFAULT;


--
-- Data for Name: archive_20261130; Type: TABLE DATA; Schema: tenure; Owner: -
--

INSERT INTO tenure.archive_20261130 VALUES ('q', '003eb084-99a4-481d-b38b-9522f241f5fb', 1, 'work', 1, 'done', 5, 1, 5, 0, 1, 0, 0, '2026-11-30 04:13:45.559929+00', '2026-11-30 04:13:45.595469+00', '2026-11-30 04:13:45.610779+00', NULL, '6c881856-2355-4cdc-8208-c29744602a8a', '00000000-0000-0000-0000-000000000001', NULL, 'done', NULL, NULL, '{"n": 1}', '{"trace": "a"}', NULL, '{"answer": 42}', NULL);
INSERT INTO tenure.archive_20261130 VALUES ('q', 'dd864ca0-086b-443d-94c9-10ad7102266f', 2, 'work', 1, 'done', 5, 1, 5, 0, 1, 0, 0, '2026-11-30 04:13:45.632803+00', '2026-11-30 04:13:45.671452+00', '2026-11-30 04:13:45.68318+00', NULL, 'fbaf53dc-be6d-46c4-9159-aef12f8f8bc7', '00000000-0000-0000-0000-000000000001', NULL, NULL, NULL, NULL, '{"n": 1}', '{"trace": "a"}', NULL, NULL, NULL);
INSERT INTO tenure.archive_20261130 VALUES ('q', 'b7429f9d-93a6-4ccc-a7da-180473a7b1d5', 3, 'work', 1, 'done', 5, 1, 5, 0, 1, 0, 0, '2026-11-30 04:13:45.719338+00', '2026-11-30 04:13:45.743624+00', '2026-11-30 04:13:45.774965+00', NULL, '82659282-f19c-4581-bd40-c008b1383594', '00000000-0000-0000-0000-000000000001', NULL, 'effect', NULL, NULL, '{"n": 1}', '{"trace": "a"}', NULL, '1', NULL);
INSERT INTO tenure.archive_20261130 VALUES ('q', '6ca6b38d-7964-47f0-8ca0-2e81cf58ad2a', 4, 'work', 1, 'done', 5, 1, 5, 0, 1, 0, 0, '2026-11-30 04:13:45.798159+00', '2026-11-30 04:13:45.81854+00', '2026-11-30 04:13:45.874663+00', NULL, '73f6daf5-ef28-40fb-b8dd-c08a2198e6f9', '00000000-0000-0000-0000-000000000001', NULL, NULL, NULL, NULL, '{"n": 1}', '{"trace": "a"}', NULL, '7', NULL);
INSERT INTO tenure.archive_20261130 VALUES ('q', '6642d425-f72e-4850-8f11-d1a25f3319f0', 5, 'work', 1, 'cancelled', 5, 0, 5, 0, 0, 0, 0, '2026-11-30 04:13:45.89397+00', NULL, '2026-11-30 04:13:45.919708+00', NULL, NULL, NULL, 'asked', 'cancelled', NULL, NULL, '{}', NULL, NULL, NULL, NULL);
INSERT INTO tenure.archive_20261130 VALUES ('q', 'ba791f23-2e7d-4480-8e8c-3ce8778f9808', 6, 'work', 1, 'cancelled', 5, 0, 5, 0, 0, 0, 0, '2026-11-30 04:13:45.939823+00', NULL, '2026-11-30 04:13:46.031463+00', '2026-11-30 04:13:44.939823+00', NULL, NULL, 'expired', NULL, NULL, NULL, '{}', NULL, NULL, NULL, NULL);
INSERT INTO tenure.archive_20261130 VALUES ('q', 'fe2cfba5-6ba9-4333-b208-eae9f7b928da', 7, 'work', 1, 'cancelled', 5, 1, 5, 0, 1, 0, 0, '2026-11-30 04:13:46.042906+00', '2026-11-30 04:13:46.067625+00', '2026-11-30 04:13:46.117714+00', NULL, '935f0e8f-024a-4b14-9586-4184f8e5331c', '00000000-0000-0000-0000-000000000001', 'discarded', NULL, NULL, NULL, '{"n": 1}', '{"trace": "a"}', '[{"type": "TimeoutError", "claim": 1, "class": "transient", "ended": "2026-11-30T04:13:46.091419+00:00", "attempt": 1, "message": "too slow", "started": "2026-11-30T04:13:46.067625+00:00"}]', NULL, NULL);


--
-- Data for Name: archive_20261201; Type: TABLE DATA; Schema: tenure; Owner: -
--



--
-- Data for Name: archive_20261202; Type: TABLE DATA; Schema: tenure; Owner: -
--



--
-- Data for Name: archive_20261203; Type: TABLE DATA; Schema: tenure; Owner: -
--



--
-- Data for Name: archive_20261204; Type: TABLE DATA; Schema: tenure; Owner: -
--



--
-- Data for Name: archive_20261205; Type: TABLE DATA; Schema: tenure; Owner: -
--



--
-- Data for Name: archive_20261206; Type: TABLE DATA; Schema: tenure; Owner: -
--



--
-- Data for Name: archive_20261207; Type: TABLE DATA; Schema: tenure; Owner: -
--



--
-- Data for Name: archive_default; Type: TABLE DATA; Schema: tenure; Owner: -
--



--
-- Data for Name: dead; Type: TABLE DATA; Schema: tenure; Owner: -
--

INSERT INTO tenure.dead VALUES ('q', '70041ea5-c5a5-40de-89cf-f435b8d9614f', 8, 'work', 1, 'dead', 5, 1, 5, 0, 1, 0, 0, '2026-11-30 04:13:46.137834+00', '2026-11-30 04:13:46.173369+00', '2026-11-30 04:13:46.192601+00', NULL, '1c7b31d1-3089-4913-a368-f089041d7682', '00000000-0000-0000-0000-000000000001', 'permanent', 'dead permanent', NULL, NULL, '{"n": 1}', '{"trace": "a"}', '[{"type": "TimeoutError", "claim": 1, "class": "transient", "ended": "2026-11-30T04:13:46.190125+00:00", "attempt": 1, "message": "too slow", "started": "2026-11-30T04:13:46.173369+00:00"}]', NULL, NULL);
INSERT INTO tenure.dead VALUES ('q', '5f00e37b-2d02-4617-88f1-277d3f4855c5', 9, 'work', 1, 'dead', 5, 1, 5, 0, 1, 0, 0, '2026-11-30 04:13:46.214707+00', '2026-11-30 04:13:46.226877+00', '2026-11-30 04:13:46.238558+00', NULL, 'e079b992-64e1-4abe-a6b8-39d8bf89e5fc', '00000000-0000-0000-0000-000000000001', 'exhausted', 'dead exhausted', NULL, NULL, '{"n": 1}', '{"trace": "a"}', '[{"type": "TimeoutError", "claim": 1, "class": "transient", "ended": "2026-11-30T04:13:46.238437+00:00", "attempt": 1, "message": "too slow", "started": "2026-11-30T04:13:46.226877+00:00"}]', NULL, NULL);
INSERT INTO tenure.dead VALUES ('q', '60b630ac-b108-4f64-9ca4-74bfb97a4963', 10, 'work', 1, 'dead', 5, 1, 5, 0, 1, 0, 0, '2026-11-30 04:13:46.296217+00', '2026-11-30 04:13:46.309061+00', '2026-11-30 04:13:46.317826+00', NULL, 'dec797e9-dfae-4d84-91e9-4400366596f0', '00000000-0000-0000-0000-000000000001', 'poison', 'dead poison', NULL, NULL, '{"n": 1}', '{"trace": "a"}', '[{"type": "TimeoutError", "claim": 1, "class": "transient", "ended": "2026-11-30T04:13:46.317748+00:00", "attempt": 1, "message": "too slow", "started": "2026-11-30T04:13:46.309061+00:00"}]', NULL, NULL);
INSERT INTO tenure.dead VALUES ('q', '2fa47c0b-5ea1-42cc-990b-5eb03b619fc6', 11, 'work', 1, 'dead', 5, 1, 5, 0, 1, 0, 0, '2026-11-30 04:13:46.364441+00', '2026-11-30 04:13:46.385649+00', '2026-11-30 04:13:46.394725+00', NULL, 'a5185456-ffcd-4629-b195-dfab1657acc6', '00000000-0000-0000-0000-000000000001', 'deferred_too_often', 'dead deferred_too_often', NULL, NULL, '{"n": 1}', '{"trace": "a"}', '[{"type": "TimeoutError", "claim": 1, "class": "transient", "ended": "2026-11-30T04:13:46.394648+00:00", "attempt": 1, "message": "too slow", "started": "2026-11-30T04:13:46.385649+00:00"}]', NULL, NULL);


--
-- Data for Name: dedup; Type: TABLE DATA; Schema: tenure; Owner: -
--

INSERT INTO tenure.dedup VALUES ('q', 'q/work/effect', '', 'b7429f9d-93a6-4ccc-a7da-180473a7b1d5', '2026-11-30 04:13:45.75684+00', NULL, NULL);
INSERT INTO tenure.dedup VALUES ('', 'work/order-1', '', '6ca6b38d-7964-47f0-8ca0-2e81cf58ad2a', '2026-11-30 04:13:45.838643+00', '2026-12-30 04:13:03.838643+00', '7');


--
-- Data for Name: jobs; Type: TABLE DATA; Schema: tenure; Owner: -
--

INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', 'b9ac09b5-414b-44f0-ae8a-b1298eac5aa8', 12, 'work', 1, 'pending', 5, 0, 5, 0, 0, 0, 1, 0, 1, false, false, '2026-11-30 05:13:15.656232+00', '2026-11-30 04:13:46.431429+00', NULL, NULL, NULL, NULL, NULL, NULL, 'revived', NULL, NULL, '{"n": 1}', '{"trace": "a"}', '[{"type": "TimeoutError", "claim": 1, "class": "transient", "ended": "2026-11-30T04:13:46.479835+00:00", "attempt": 1, "message": "too slow", "started": "2026-11-30T04:13:46.446613+00:00"}]', '2026-11-30 04:13:46.446613+00');
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', '8944eb6a-e1be-4f4f-9eec-16118e5395a2', 13, 'work', 1, 'pending', 5, 1, 5, 0, 0, 0, 1, 0, 0, false, false, '2026-11-30 05:13:15.951889+00', '2026-11-30 04:13:46.773356+00', '2026-11-30 04:13:46.819761+00', NULL, NULL, NULL, '00000000-0000-0000-0000-000000000001', NULL, NULL, NULL, NULL, '{"n": 1}', '{"trace": "a"}', '[{"type": "TimeoutError", "claim": 1, "class": "transient", "ended": "2026-11-30T04:13:46.951897+00:00", "attempt": 1, "message": "too slow", "started": "2026-11-30T04:13:46.819761+00:00"}]', NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', '83585ed3-7cd1-447c-9a12-9e73471bfb8e', 14, 'work', 1, 'pending', 5, 0, 5, 0, 0, 1, 1, 0, 0, false, false, '2026-11-30 05:13:16.002872+00', '2026-11-30 04:13:46.971407+00', '2026-11-30 04:13:46.984536+00', NULL, NULL, NULL, '00000000-0000-0000-0000-000000000001', NULL, NULL, NULL, NULL, '{"n": 1}', '{"trace": "a"}', '[{"claim": 1, "class": "throttled", "ended": "2026-11-30T04:13:47.002877+00:00", "attempt": 1, "message": "429", "started": "2026-11-30T04:13:46.984536+00:00"}]', NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', '67942ff2-253e-403d-84a0-c48bb0839d95', 15, 'work', 1, 'pending', 5, 0, 5, 0, 0, 1, 1, 0, 0, false, false, '2026-11-30 05:13:16.074948+00', '2026-11-30 04:13:47.036202+00', '2026-11-30 04:13:47.052812+00', NULL, NULL, NULL, '00000000-0000-0000-0000-000000000001', NULL, NULL, NULL, NULL, '{"n": 1}', '{"trace": "a"}', NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', 'a6a7ca0a-5d60-47db-922a-8a3a12d0686f', 16, 'work', 1, 'pending', 5, 1, 5, 1, 0, 0, 1, 0, 0, true, false, '2026-11-30 04:13:47.218153+00', '2026-11-30 04:13:47.093065+00', '2026-11-30 04:13:47.107956+00', NULL, NULL, NULL, '00000000-0000-0000-0000-000000000001', NULL, NULL, NULL, NULL, '{"n": 1}', '{"trace": "a"}', '[{"type": "LeaseExpired", "claim": 1, "class": "expired", "ended": "2026-11-30T04:13:47.218159+00:00", "worker": "host-1", "attempt": 1, "message": "the lease expired", "started": "2026-11-30T04:13:47.107956+00:00"}]', NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', 'e8fab0ef-57fb-450e-9618-5a56f55ad4c5', 17, 'work', 1, 'running', 5, 1, 5, 0, 0, 0, 1, 0, 0, false, false, '2026-11-30 04:13:47.24773+00', '2026-11-30 04:13:47.24773+00', '2026-11-30 04:13:47.25583+00', '2026-11-30 05:13:47.25583+00', NULL, 'af14c362-9ff1-4704-940b-82d988993c28', '00000000-0000-0000-0000-000000000001', NULL, 'running', NULL, NULL, '{"n": 1}', '{"trace": "a"}', NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', '1a42e5ae-411c-4c32-ab63-1a057efc5556', 18, 'work', 1, 'running', 5, 1, 5, 0, 0, 0, 1, 0, 0, false, true, '2026-11-30 04:13:47.269557+00', '2026-11-30 04:13:47.269557+00', '2026-11-30 04:13:47.278256+00', '2026-11-30 05:13:47.278256+00', NULL, '3546a2f9-9a9f-49b5-b203-73775500e34b', '00000000-0000-0000-0000-000000000001', NULL, NULL, NULL, NULL, '{"n": 1}', '{"trace": "a"}', NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', 'bf9da14b-b5ab-4e1d-94fd-057c1c5fdad1', 19, 'work', 1, 'running', 5, 1, 5, 0, 0, 0, 1, 0, 0, false, false, '2026-11-30 04:13:47.307428+00', '2026-11-30 04:13:47.307428+00', '2026-11-30 04:13:47.31126+00', '2026-11-30 04:13:47.31226+00', NULL, 'e456e64f-1257-465f-914b-c2f2d34c0790', '00000000-0000-0000-0000-000000000001', NULL, NULL, NULL, NULL, '{"n": 1}', '{"trace": "a"}', NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', '9df19a7a-bc5b-4f92-9cd0-4f0f0a75e139', 20, 'work', 1, 'pending', 5, 0, 5, 0, 0, 0, 1, 1, 0, false, false, '2026-11-30 04:13:47.343491+00', '2026-11-30 04:13:47.323838+00', '2026-11-30 04:13:47.335109+00', NULL, NULL, NULL, '00000000-0000-0000-0000-000000000001', NULL, NULL, NULL, NULL, '{"n": 1}', '{"trace": "a"}', NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', '7af0b09a-1207-40e9-9937-942c05d2604b', 21, 'work', 1, 'pending', 5, 0, 5, 0, 0, 0, 0, 0, 0, false, false, '2026-11-30 04:13:47.349802+00', '2026-11-30 04:13:47.349802+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', '1e66efec-5e68-49ba-9e69-9fcee15b319e', 22, 'work', 1, 'pending', 5, 0, 5, 0, 0, 0, 0, 0, 0, false, false, '2026-11-30 04:13:47.349802+00', '2026-11-30 04:13:47.349802+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', '05f51f64-032f-4e7c-b471-b7682b3125c1', 23, 'work', 1, 'pending', 5, 0, 5, 0, 0, 0, 0, 0, 0, false, false, '2026-11-30 04:13:47.349802+00', '2026-11-30 04:13:47.349802+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', 'fc547dba-873c-4164-8100-ca66c792f0e4', 24, 'work', 1, 'pending', 0, 0, 5, 0, 0, 0, 0, 0, 0, false, false, '2026-11-30 04:13:47.361867+00', '2026-11-30 04:13:47.361867+00', NULL, NULL, NULL, NULL, NULL, NULL, 'pending', NULL, NULL, '{}', '{"trace": "b"}', NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', '9751a787-a4a4-4a47-88e7-cc11eaf5689d', 25, 'work', 2, 'pending', 5, 0, 5, 0, 0, 0, 0, 0, 0, false, false, '2026-11-30 04:13:47.367504+00', '2026-11-30 04:13:47.367504+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', '4a4babf8-fb96-4316-88a3-b3fbc7777fa7', 26, 'work', 1, 'pending', 5, 0, 5, 0, 0, 0, 0, 0, 0, false, false, '2026-11-30 05:13:47.371791+00', '2026-11-30 04:13:47.371791+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL);
INSERT INTO tenure.jobs OVERRIDING SYSTEM VALUE VALUES ('q', 'f2a1d61d-f6cb-434a-b5fc-8647d89166e0', 27, 'work', 1, 'pending', 5, 0, 5, 0, 0, 0, 0, 0, 0, false, false, '2026-11-30 04:13:47.374323+00', '2026-11-30 04:13:47.374323+00', NULL, NULL, '2026-12-01 04:13:47.374323+00', NULL, NULL, NULL, NULL, NULL, NULL, '{}', NULL, NULL, NULL);


--
-- Data for Name: keys; Type: TABLE DATA; Schema: tenure; Owner: -
--

INSERT INTO tenure.keys VALUES ('q', 'done', 'work', '\x29d0a9afb5b484d5d9a85e71cb034ba731ee59a84d9672f3cddbca1114a893a4', '003eb084-99a4-481d-b38b-9522f241f5fb', '01:00:00', 'done', '{"answer": 42}', '6c881856-2355-4cdc-8208-c29744602a8a', '2026-11-30 05:13:03.610647+00');
INSERT INTO tenure.keys VALUES ('q', 'effect', 'work', '\x29d0a9afb5b484d5d9a85e71cb034ba731ee59a84d9672f3cddbca1114a893a4', 'b7429f9d-93a6-4ccc-a7da-180473a7b1d5', '01:00:00', 'done', '1', '82659282-f19c-4581-bd40-c008b1383594', '2026-11-30 05:13:03.774894+00');
INSERT INTO tenure.keys VALUES ('q', 'cancelled', 'work', '\xab5d0e4bed41ca9ce33ee0fdd3931907508bb996068bada46c726e53e1ab4549', '6642d425-f72e-4850-8f11-d1a25f3319f0', '01:00:00', 'cancelled', NULL, NULL, '2026-11-30 05:13:03.919634+00');
INSERT INTO tenure.keys VALUES ('q', 'dead permanent', 'work', '\x29d0a9afb5b484d5d9a85e71cb034ba731ee59a84d9672f3cddbca1114a893a4', '70041ea5-c5a5-40de-89cf-f435b8d9614f', '01:00:00', 'dead', NULL, '1c7b31d1-3089-4913-a368-f089041d7682', NULL);
INSERT INTO tenure.keys VALUES ('q', 'dead exhausted', 'work', '\x29d0a9afb5b484d5d9a85e71cb034ba731ee59a84d9672f3cddbca1114a893a4', '5f00e37b-2d02-4617-88f1-277d3f4855c5', '01:00:00', 'dead', NULL, 'e079b992-64e1-4abe-a6b8-39d8bf89e5fc', NULL);
INSERT INTO tenure.keys VALUES ('q', 'dead poison', 'work', '\x29d0a9afb5b484d5d9a85e71cb034ba731ee59a84d9672f3cddbca1114a893a4', '60b630ac-b108-4f64-9ca4-74bfb97a4963', '01:00:00', 'dead', NULL, 'dec797e9-dfae-4d84-91e9-4400366596f0', NULL);
INSERT INTO tenure.keys VALUES ('q', 'dead deferred_too_often', 'work', '\x29d0a9afb5b484d5d9a85e71cb034ba731ee59a84d9672f3cddbca1114a893a4', '2fa47c0b-5ea1-42cc-990b-5eb03b619fc6', '01:00:00', 'dead', NULL, 'a5185456-ffcd-4629-b195-dfab1657acc6', NULL);
INSERT INTO tenure.keys VALUES ('q', 'revived', 'work', '\x29d0a9afb5b484d5d9a85e71cb034ba731ee59a84d9672f3cddbca1114a893a4', 'b9ac09b5-414b-44f0-ae8a-b1298eac5aa8', '01:00:00', NULL, NULL, NULL, NULL);
INSERT INTO tenure.keys VALUES ('q', 'running', 'work', '\x29d0a9afb5b484d5d9a85e71cb034ba731ee59a84d9672f3cddbca1114a893a4', 'e8fab0ef-57fb-450e-9618-5a56f55ad4c5', '01:00:00', NULL, NULL, NULL, NULL);
INSERT INTO tenure.keys VALUES ('q', 'pending', 'work', '\xab5d0e4bed41ca9ce33ee0fdd3931907508bb996068bada46c726e53e1ab4549', 'fc547dba-873c-4164-8100-ca66c792f0e4', '01:00:00', NULL, NULL, NULL, NULL);


--
-- Data for Name: kinds; Type: TABLE DATA; Schema: tenure; Owner: -
--

INSERT INTO tenure.kinds VALUES ('work', 1, 'q', '{older}', false, '{"lease": 30.0, "key_ttl": 86400.0, "max_attempts": 3}', '{"max_attempts": 5}', '{"type": "object"}', '2026-11-30 04:13:45.438728+00');
INSERT INTO tenure.kinds VALUES ('work', 2, 'q', '{older}', false, '{"lease": 30.0, "key_ttl": 86400.0, "max_attempts": 3}', '{"max_attempts": 5}', '{"type": "object"}', '2026-11-30 04:13:45.457244+00');


--
-- Data for Name: migrations; Type: TABLE DATA; Schema: tenure; Owner: -
--

INSERT INTO tenure.migrations VALUES (1, 'first', false, '2026-11-30 04:13:44.862592+00');
INSERT INTO tenure.migrations VALUES (2, 'results', true, '2026-11-30 04:13:44.868874+00');
INSERT INTO tenure.migrations VALUES (3, 'storage', true, '2026-11-30 04:13:44.87953+00');
INSERT INTO tenure.migrations VALUES (4, 'roles', true, '2026-11-30 04:13:44.889883+00');


--
-- Data for Name: queues; Type: TABLE DATA; Schema: tenure; Owner: -
--

INSERT INTO tenure.queues VALUES ('q', 'team', '00:00:30', false, 30, '{}', '2026-11-30 04:13:45.43899+00');


--
-- Data for Name: workers; Type: TABLE DATA; Schema: tenure; Owner: -
--

INSERT INTO tenure.workers VALUES ('00000000-0000-0000-0000-000000000001', 'host-1', '{q}', 4, '2026-11-30 04:13:45.504341+00', '2026-11-30 04:13:45.504341+00');


--
-- Name: jobs_seq_seq; Type: SEQUENCE SET; Schema: tenure; Owner: -
--

SELECT pg_catalog.setval('tenure.jobs_seq_seq', 27, true);


--
-- Name: dead dead_pkey; Type: CONSTRAINT; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.dead
    ADD CONSTRAINT dead_pkey PRIMARY KEY (id, queue);


--
-- Name: dedup dedup_pkey; Type: CONSTRAINT; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.dedup
    ADD CONSTRAINT dedup_pkey PRIMARY KEY (queue, dedup_key, step);


--
-- Name: jobs jobs_moments; Type: CHECK CONSTRAINT; Schema: tenure; Owner: -
--

ALTER TABLE tenure.jobs
    ADD CONSTRAINT jobs_moments CHECK ((((available_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (available_at <= '9999-12-31 00:00:00+00'::timestamp with time zone)) AND ((accepted_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (accepted_at <= '9999-12-31 00:00:00+00'::timestamp with time zone)) AND ((expires_at IS NULL) OR ((expires_at >= '2000-01-01 00:00:00+00'::timestamp with time zone) AND (expires_at <= '9999-12-31 00:00:00+00'::timestamp with time zone))))) NOT VALID;


--
-- Name: jobs jobs_pkey; Type: CONSTRAINT; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id, queue) WITH (fillfactor='50');


--
-- Name: keys keys_pkey; Type: CONSTRAINT; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (queue, key);


--
-- Name: kinds kinds_pkey; Type: CONSTRAINT; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.kinds
    ADD CONSTRAINT kinds_pkey PRIMARY KEY (name, version);


--
-- Name: migrations migrations_pkey; Type: CONSTRAINT; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);


--
-- Name: queues queues_pkey; Type: CONSTRAINT; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (name);


--
-- Name: workers workers_pkey; Type: CONSTRAINT; Schema: tenure; Owner: -
--

ALTER TABLE ONLY tenure.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);


--
-- Name: archive_id; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX archive_id ON ONLY tenure.archive USING btree (id);


--
-- Name: archive_20261130_id_idx; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX archive_20261130_id_idx ON tenure.archive_20261130 USING btree (id);


--
-- Name: archive_20261201_id_idx; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX archive_20261201_id_idx ON tenure.archive_20261201 USING btree (id);


--
-- Name: archive_20261202_id_idx; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX archive_20261202_id_idx ON tenure.archive_20261202 USING btree (id);


--
-- Name: archive_20261203_id_idx; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX archive_20261203_id_idx ON tenure.archive_20261203 USING btree (id);


--
-- Name: archive_20261204_id_idx; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX archive_20261204_id_idx ON tenure.archive_20261204 USING btree (id);


--
-- Name: archive_20261205_id_idx; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX archive_20261205_id_idx ON tenure.archive_20261205 USING btree (id);


--
-- Name: archive_20261206_id_idx; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX archive_20261206_id_idx ON tenure.archive_20261206 USING btree (id);


--
-- Name: archive_20261207_id_idx; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX archive_20261207_id_idx ON tenure.archive_20261207 USING btree (id);


--
-- Name: archive_default_id_idx; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX archive_default_id_idx ON tenure.archive_default USING btree (id);


--
-- Name: dead_by_end; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX dead_by_end ON tenure.dead USING btree (queue, ended_at, id);


--
-- Name: dedup_expiring; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX dedup_expiring ON tenure.dedup USING btree (expires_at) WHERE (expires_at IS NOT NULL);


--
-- Name: jobs_claim; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX jobs_claim ON tenure.jobs USING btree (queue, priority, available_at, seq) WHERE ((state = 'pending'::tenure.job_state) AND (gate IS NULL) AND (NOT suspect));


--
-- Name: jobs_expiring; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX jobs_expiring ON tenure.jobs USING btree (queue, expires_at) WHERE ((state = 'pending'::tenure.job_state) AND (expires_at IS NOT NULL));


--
-- Name: jobs_leases; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX jobs_leases ON tenure.jobs USING btree (queue, lease_until) WHERE (state = 'running'::tenure.job_state);


--
-- Name: jobs_suspects; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX jobs_suspects ON tenure.jobs USING btree (queue, available_at, seq) WHERE ((state = 'pending'::tenure.job_state) AND (gate IS NULL) AND suspect);


--
-- Name: keys_expiring; Type: INDEX; Schema: tenure; Owner: -
--

CREATE INDEX keys_expiring ON tenure.keys USING btree (expires_at) WHERE (expires_at IS NOT NULL);


--
-- Name: archive_20261130_id_idx; Type: INDEX ATTACH; Schema: tenure; Owner: -
--

ALTER INDEX tenure.archive_id ATTACH PARTITION tenure.archive_20261130_id_idx;


--
-- Name: archive_20261201_id_idx; Type: INDEX ATTACH; Schema: tenure; Owner: -
--

ALTER INDEX tenure.archive_id ATTACH PARTITION tenure.archive_20261201_id_idx;


--
-- Name: archive_20261202_id_idx; Type: INDEX ATTACH; Schema: tenure; Owner: -
--

ALTER INDEX tenure.archive_id ATTACH PARTITION tenure.archive_20261202_id_idx;


--
-- Name: archive_20261203_id_idx; Type: INDEX ATTACH; Schema: tenure; Owner: -
--

ALTER INDEX tenure.archive_id ATTACH PARTITION tenure.archive_20261203_id_idx;


--
-- Name: archive_20261204_id_idx; Type: INDEX ATTACH; Schema: tenure; Owner: -
--

ALTER INDEX tenure.archive_id ATTACH PARTITION tenure.archive_20261204_id_idx;


--
-- Name: archive_20261205_id_idx; Type: INDEX ATTACH; Schema: tenure; Owner: -
--

ALTER INDEX tenure.archive_id ATTACH PARTITION tenure.archive_20261205_id_idx;


--
-- Name: archive_20261206_id_idx; Type: INDEX ATTACH; Schema: tenure; Owner: -
--

ALTER INDEX tenure.archive_id ATTACH PARTITION tenure.archive_20261206_id_idx;


--
-- Name: archive_20261207_id_idx; Type: INDEX ATTACH; Schema: tenure; Owner: -
--

ALTER INDEX tenure.archive_id ATTACH PARTITION tenure.archive_20261207_id_idx;


--
-- Name: archive_default_id_idx; Type: INDEX ATTACH; Schema: tenure; Owner: -
--

ALTER INDEX tenure.archive_id ATTACH PARTITION tenure.archive_default_id_idx;


--
-- PostgreSQL database dump complete
--
