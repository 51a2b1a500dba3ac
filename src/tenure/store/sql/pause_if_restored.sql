-- pause_if_restored: where the jobs were restored from elsewhere, pauses every queue; answers their names, else null.
--
-- Why it is safe: the function (migration 0005) looks for itself, with the owner's rights. Of many at once one is answered.
select tenure.pause_if_restored()
