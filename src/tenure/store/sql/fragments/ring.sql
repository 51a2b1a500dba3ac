-- Wakes the worker that is on call for the queue q.name, if there is one, when this transaction commits. Whoever is on call
-- holds a lock, so a lock that can be shared tells that nobody is; it is given back in the same breath, with nothing in
-- between that could fail or be cancelled, and two that ask at once do not see each other. Where somebody has let the server's
-- queue of notifications run nearly full, nobody is told: one more may fail the commit, and workers look by themselves. Always
-- true.
select case when pg_try_advisory_lock_shared({on_call}) then pg_advisory_unlock_shared({on_call})
            when pg_notification_queue_usage() > 0.9 then true
            else pg_notify('tenure_' || to_hex({on_call}), '') is not null end
