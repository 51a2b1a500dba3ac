-- running -> pending after a delay: the attempt is given back, a deferral counted, the handler's own end clears suspicion.
with
given as materialized (
    select * from unnest(%(id)s::uuid[], %(token)s::uuid[], %(delay)s::float8[], %(failure)s::text[])
        as g(id, token, delay, failure)
),
{mine},
back as (
    update tenure.jobs j
    set {pending}, available_at = clock_timestamp() + make_interval(secs => greatest(m.delay, 0)), gate = {lets_pass},
        attempts = j.attempts - 1, deferrals = j.deferrals + 1, suspect = false, expiries = 0, deaths = 0,
        history = case when m.failure is null then j.history else {failed} end
    from mine m
    where j.queue is not distinct from %(queue)s and j.id between m.id and m.id and not m.cancel
    returning j.id, j.order_key, j.gate, j.available_at, j.limit_name, j.limit_key, j.share
),
{asked},
{limited},
{behind}
select id, 'settled' as answer from back where {handed} union all select id, 'cancelled' from asked
