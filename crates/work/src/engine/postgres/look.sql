-- Failed and conflicted steps, newest first. Like the other indexes it does not mention the state, so a claim changes
-- nothing in it, and only failed and conflicted steps cost an entry.
create index steps_aside on holdoff.steps (task, step) where line = 2;

-- Recent activity, as counted by the nodes, for dashboards. Level 0 has narrow buckets and is kept for minutes. Level 1
-- has wide buckets and is kept for a day. The column "what" is 0 for steps by outcome, 1 for failures by class, 2 for
-- retries by attempt, 3 for operations and 4 for destinations, both by whether they failed.
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

-- The processes that use this store, with the last report of each.
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
