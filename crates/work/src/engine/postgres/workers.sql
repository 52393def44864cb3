-- When a worker was last known to be there, so that those who are gone can be forgotten. A release before this one leaves
-- it out, and adds a row for every start; so no name is unique.
alter table holdoff.workers add column seen_at timestamptz;
create index workers_name on holdoff.workers (name);
