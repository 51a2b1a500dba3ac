-- Wakes the worker that is on call for the queue q.name, if there is one, when this transaction commits. Whoever is on call
-- holds a lock, so a lock that can be shared tells that nobody is; it is given back in the same breath, with nothing in
-- between that could fail or be cancelled, and two that ask at once do not see each other. Always true.
select case when pg_try_advisory_lock_shared({on_call}) then pg_advisory_unlock_shared({on_call})
            else pg_notify('tenure_' || to_hex({on_call}), '') is not null end
