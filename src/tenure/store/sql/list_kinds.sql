-- list_kinds: kinds as the database knows them, by name or older name. Reads; changes nothing.
select k.name, k.version, k.queue, k.aliases, k.effect, k.policy, k.operator, k.arguments
from tenure.kinds k
where %(name)s::text is null or k.name = %(name)s or %(name)s = any(k.aliases)
order by k.name, k.version
