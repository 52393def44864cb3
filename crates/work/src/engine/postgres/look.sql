-- Failed and conflicted steps, newest first. Like its neighbours it does not mention the state: a claim changes nothing
-- in it, and only steps that go wrong cost an entry.
create index steps_aside on holdoff.steps (task, step) where line = 2;

-- What happened when, as nodes counted it, for people to look at: level 0 in narrow buckets, kept for minutes, level 1
-- in wide ones, kept for a day. What is counted: 0 steps by outcome, 1 failures by class, 2 retries by attempt,
-- 3 operations and 4 destinations by whether they failed.
create table holdoff.pulse (
    level smallint not null,
    what smallint not null,
    at timestamptz not null,
    namespace text not null,
    name text not null,
    outcome smallint not null,
    count bigint not null,
    class text,
    primary key (level, what, at, namespace, name, outcome)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The processes that work here, and what they said last.
create table holdoff.nodes (
    id uuid primary key,
    name text not null,
    version text not null,
    started_at timestamptz not null,
    seen_at timestamptz not null,
    policies text not null,
    drift text,
    running bigint not null,
    places bigint not null,
    finished bigint not null
) with (fillfactor = 50);
