-- follow: where jobs are, and whether their queue keeps what has ended. Reads; changes nothing.
--
-- A job that has ended counts as ended, also where a repeat has just inserted it again (acceptance.py). The function reads with
-- the owner's rights: a producer may ask for jobs that it names, and read no table of jobs that have ended.
select f.id, f.state, f.result::text as result, {keeps} as kept
from tenure.follow(%(ids)s::uuid[]) f
