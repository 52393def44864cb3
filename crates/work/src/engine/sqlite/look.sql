-- Failed and conflicted steps, newest first, with the columns that most queries filter by. These steps are far apart in
-- the table, so the index saves reading its pages.
create index holdoff_steps_aside on holdoff_steps (task, step, state, lane, class, failures, destination, created_at)
    where state in (4, 5);

-- Recent activity, as counted by the nodes, for dashboards. Level 0 has narrow buckets and is kept for minutes. Level 1
-- has wide buckets and is kept for a day. The column "what" is 0 for steps by outcome, 1 for failures by class, 2 for
-- retries by attempt, 3 for operations and 4 for destinations, both by whether they failed.
create table holdoff_pulse (
    level integer not null,
    what integer not null,
    at integer not null,
    namespace text not null,
    name text not null,
    outcome integer not null,
    count integer not null,
    class text,
    primary key (level, what, at, namespace, name, outcome)
) strict, without rowid;

-- The processes that use this store, with the last report of each.
create table holdoff_nodes (
    id blob primary key,
    name text not null,
    version text not null,
    started_at integer not null,
    seen_at integer not null,
    policies text not null,
    drift text,
    running integer not null,
    places integer not null,
    finished integer not null
) strict, without rowid;
