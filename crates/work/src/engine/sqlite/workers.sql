-- When a worker last reported, so that workers that are gone can be removed. An earlier release leaves it empty and
-- adds a row at every start, so names are not unique.
alter table holdoff_workers add column seen_at integer;
create index holdoff_workers_name on holdoff_workers (name);
