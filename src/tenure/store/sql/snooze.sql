-- snooze: running -> pending because the handler said "not yet"; the attempt is given back, a deferral counted.
--
-- Why it is safe: as throttle; it is the same transition for another reason.
{deferred}
