-- retry: running -> pending after a failure that may pass; the attempt stays spent, the failure joins the history.
--
-- Why it is safe: fenced (see "mine"). A job without attempts left is not touched: its worker buries it, and if that
-- worker dies the sweep does. The handler's own end clears suspicion; a child's death makes it.
with
given as materialized (
    select * from unnest(%(id)s::uuid[], %(token)s::uuid[], %(delay)s::float8[], %(failure)s::text[], %(death)s::bool[],
                         %(keeps)s::bool[]) as g(id, token, delay, failure, death, keeps)
),
{mine},
back as (
    update tenure.jobs j
    set {pending}, available_at = clock_timestamp() + make_interval(secs => greatest(m.delay, 0)), gate = {lets_pass},
        suspect = m.death or (m.keeps and j.suspect), expiries = case when m.keeps then j.expiries else 0 end,
        deaths = case when m.death then j.deaths + 1 when m.keeps then j.deaths else 0 end,
        history = {failed}
    from mine m
    where j.queue is not distinct from %(queue)s and j.id between m.id and m.id
      and not m.cancel and m.attempts < m.max_attempts
    returning j.id, j.order_key, j.gate, j.available_at, j.limit_name, j.limit_key, j.share
),
{asked},
{limited},
{behind}
select id, 'settled' as answer from back where {handed} union all select id, 'cancelled' from asked
