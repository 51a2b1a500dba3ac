-- enqueue_many: (nothing) -> pending, for those who speak SQL.
--
-- Why it is safe: the jobs go through the very statements of accept.sql and replace.sql, put in here by the loader with
-- this block's variables for their values. Each runs with a snapshot of its own, so a key that another session committed
-- meanwhile ('unseen') is seen in the next round; in REPEATABLE READ the first round fails with 40001, and nothing here
-- catches that. What is asked for is looked at before anything is written, and each name is qualified: the caller's search
-- path is not used.
create or replace function tenure.enqueue_many(kind text, jobs jsonb, queue text default null)
returns table (n integer, id uuid, answer text, state text, result jsonb)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $body$
#variable_conflict use_column
-- text {digest}
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
    order_key text[];
    limit_name text;
    limit_key text[];
    share text[];
    -- which members of the payload its limit goes by
    limit_by text;
    share_by text;
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
        select k.* from tenure.kinds k
        where enqueue_many.kind = any(k.aliases)
          and k.name <> all(array(
              select a.alias from tenure.kinds o, unnest(o.aliases) as a(alias) where o.name = enqueue_many.kind
          ))
    ),
    found as (
        select w.* from newer w
        union all
        select k.* from tenure.kinds k where k.name = enqueue_many.kind and not exists (select from newer)
    )
    select f.name, f.version, coalesce(enqueue_many.queue, f.queue), coalesce(f.aliases[1], f.name),
           coalesce((f.policy ->> 'max_attempts')::smallint, 10), coalesce((f.policy ->> 'key_ttl')::float8, 604800),
           f.policy -> 'limit' ->> 'name', f.policy -> 'limit' ->> 'by', f.policy -> 'limit' ->> 'share'
    into args.kind, args.version, args.queue, args.fingerprint_kind, args.max_attempts, args.key_ttl, args.limit_name,
         args.limit_by, args.share_by
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
                         '{payload,key,delay,at,priority,expires_at,headers,replace,order}'::text[])) then
                    array['It has a member that is not known: '
                              || (select left(min(o.name), 100) from jsonb_object_keys(j.job) as o(name) where o.name <> all(
                                  '{payload,key,delay,at,priority,expires_at,headers,replace,order}'::text[])) || '.',
                          'It may have payload, key, delay, at, priority, expires_at, headers, replace and order.']
                when jsonb_typeof(m.payload) <> 'object' then
                    array['The payload is no JSON object.', 'Write {"name": value, ...}, with the names of the handler''s'
                          ' parameters.']
                when jsonb_typeof(m.key) <> 'string' or octet_length(m.key #>> '{}') not between 1 and 500 then
                    array['The idempotency key is no text of 1 to 500 bytes.', 'Hash what is longer; leave it out, or null,'
                          ' for a job without one.']
                when jsonb_typeof(m.ordering) <> 'string' or octet_length(m.ordering #>> '{}') not between 1 and 500 then
                    array['The ordering key is no text of 1 to 500 bytes.', 'Hash what is longer; leave it out, or null,'
                          ' for a job without one.']
                when exists (
                         select from unnest(array[args.limit_by, args.share_by]) as b(name)
                         where b.name is not null and (
                             coalesce(jsonb_typeof(m.payload -> b.name), '') not in ('string', 'number')
                             or jsonb_typeof(m.payload -> b.name) = 'number' and m.payload ->> b.name !~ '^-?[0-9]+$'
                             or octet_length(m.payload ->> b.name) not between 1 and 500
                         )) then
                    array[format('Jobs of this kind count for the limit %L by %s, and the payload lacks what to count by.',
                                 args.limit_name, concat_ws(' and ', args.limit_by, args.share_by)),
                          'Write text of 1 to 500 bytes, or a whole number.']
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
                       nullif(j.job -> 'order', 'null') as ordering,
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
               array_agg(j.expires_at), array_agg(j.key), array_agg(j.headers),
               array_agg(j.order_key), array_agg(j.limit_key), array_agg(j.share)
        into args.id, args.payload, args.priority, args.delay, args.at, args.expires_at, args.key, args.headers,
             args.order_key, args.limit_key, args.share
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
                   j.job ->> 'key' as key, j.job ->> 'headers' as headers, j.job ->> 'order' as order_key,
                   case when args.limit_name is not null
                        then coalesce(j.job -> 'payload' ->> args.limit_by, '') end as limit_key,
                   case when args.limit_name is not null then coalesce(j.job -> 'payload' ->> args.share_by, '') end as share
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
{accept}
        loop
            if told.room is not null then
                raise exception using errcode = 'TN003',
                    message = case when told.answer = 'draining'
                        then format('Queue %L is being drained: it accepts nothing new.', args.queue)
                        else format('Queue %L is full.', args.queue) end,
                    detail = told.room,
                    hint = 'Nothing was stored. Try again after a while; this ends the transaction unless a savepoint holds it.';
            end if;
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
{replace}
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
$body$;

comment on function tenure.enqueue_many(text, jsonb, text) is
    'Enqueue jobs of one kind; a row for each, in their order. See docs/reference/sql.md of Tenure.';
