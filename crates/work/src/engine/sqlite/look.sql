-- Failed and conflicted steps, newest first, with what they are mostly looked for by: they lie far apart in the table, and each
-- page of it that need not be read is time saved.
create index holdoff_steps_aside on holdoff_steps (task, step, state, lane, class, failures, destination, created_at)
    where state in (4, 5);

-- What happened when, as nodes counted it, for people to look at: level 0 in narrow buckets, kept for minutes, level 1
-- in wide ones, kept for a day. What is counted: 0 steps by outcome, 1 failures by class, 2 retries by attempt,
-- 3 operations and 4 destinations by whether they failed.
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

-- The processes that work here, and what they said last.
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
