-- When a worker last reported, so that workers that are gone can be removed. An earlier release leaves it empty and
-- adds a row at every start, so names are not unique.
alter table holdoff.workers add column seen_at timestamptz;
create index workers_name on holdoff.workers (name);
