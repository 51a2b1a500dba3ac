-- throttle: running -> pending because the other side said "not now"; the attempt is given back, a deferral counted.
--
-- Why it is safe: fenced (see "mine"). The cap on deferrals is the worker's to apply: it buries the job instead.
{deferred}
