-- sweep: expired leases. running -> pending as a suspect, -> dead (exhausted) when its attempts are spent, -> cancelled
-- when somebody had asked for it.
--
-- Why it is safe: an expired lease is lost whether or not anybody takes the job, so its holder can settle nothing any
-- more; what a settlement or another sweep holds is skipped. Each row is judged by itself, from the row alone: kinds this
-- process has never heard of come back like any other. No token is kept: what the sweep ended, no settlement did.
with
mine as materialized (
    select j.id, j.cancel, null::uuid as settled_by, j.attempts < j.max_attempts as again,
           pg_catalog.jsonb_build_object('class', 'expired', 'type', 'LeaseExpired', 'message', 'the lease expired',
                              'worker', (select w.name from tenure.workers w where w.id = j.worker))::text as failure
    from tenure.jobs j
    where j.queue = %(queue)s and j.state = 'running' and j.lease_until <= statement_timestamp()
      and j.lease_until >= coalesce(%(low)s::timestamptz, '-infinity')
    order by j.lease_until
    limit %(limit)s
    for update of j skip locked
),
back as (
    update tenure.jobs j
    set {pending}, available_at = clock_timestamp(), suspect = true, expiries = j.expiries + 1,
        gate = case when j.limit_name is not null then 'limit' end, history = {failed}
    from mine m
    where j.queue is not distinct from %(queue)s and j.id between m.id and m.id and not m.cancel and m.again
    returning j.id, j.kind, j.available_at, j.limit_name, j.limit_key, j.share
),
given_up as (
    delete from tenure.jobs j using mine m
    where j.queue is not distinct from %(queue)s and j.id between m.id and m.id and not m.cancel and not m.again
    returning j.*, m.settled_by, 'exhausted' as reason, {failed} as told, {blocks} as blocks
),
{dead},
{asked},
{limited},
{passed}
select id, kind, 'pending' as state from back
where (
    {ring}
    from (select %(queue)s::text) as q(name)
    where exists (select from back)
) is not false
union all select id, kind, 'dead' from given_up where {handed}
union all select id, kind, 'cancelled' from asked
