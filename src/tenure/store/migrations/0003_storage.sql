-- compatible
-- A claim writes the row anew. Where the new version finds room on the page of the old one, the server logs the difference
-- alone and locks no second page: half of each page, and of each leaf of the primary key, is left free for it.
alter table tenure.jobs set (fillfactor = 50, vacuum_truncate = false);
alter index tenure.jobs_pkey set (fillfactor = 50);
