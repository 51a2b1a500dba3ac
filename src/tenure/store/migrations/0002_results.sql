-- compatible
-- When a job was claimed for the first time (what its effects in other databases may be remembered from), and the result
-- of an effect in its dedup row (what another job with the same natural key answers with).
alter table tenure.jobs add column first_claimed_at timestamptz;
alter table tenure.archive add column first_claimed_at timestamptz;
alter table tenure.dead add column first_claimed_at timestamptz;
alter table tenure.dedup add column result jsonb;
