-- Times are microseconds since 1970, supplied by the writing process (see sqlite/time.rs in holdoff-sql).

-- The properties that decide which worker may claim a step, and in which order.
create table holdoff_lanes (
    -- A number is never used again, because other processes may have cached it.
    id integer primary key autoincrement,
    namespace text not null,
    queue text not null,
    operation text not null,
    kind integer not null,
    priority integer not null,
    paused integer not null default 0,
    -- Since when no submission may use the lane without looking it up again, because it had no steps.
    retired_at integer,
    unique (namespace, queue, operation, kind, priority)
) strict;

-- Paused queues and operations, so that lanes created later are paused too.
create table holdoff_paused (
    namespace text not null,
    kind integer not null,
    name text not null,
    since integer not null,
    primary key (namespace, kind, name)
) strict, without rowid;

-- Compiled policies by content and name. A step keeps the policy it was submitted with.
create table holdoff_policies (
    id integer primary key,
    hash blob not null,
    name text not null,
    compiled text not null,
    deployed_at integer not null,
    unique (hash, name)
) strict;

-- Policy files by content, with the author of each, and the time and the author of its last activation. One of them is
-- active.
create table holdoff_policy_sets (
    hash blob primary key,
    file text not null,
    deployed_at integer not null,
    deployed_by text,
    active integer not null,
    activated_at integer,
    activated_by text
) strict, without rowid;

-- Workers by name, with the last report of each, so that workers that are gone can be removed.
create table holdoff_workers (
    id integer primary key,
    name text not null,
    started_at integer not null,
    seen_at integer not null
) strict;
create index holdoff_workers_name on holdoff_workers (name);

-- Unfinished steps.
create table holdoff_steps (
    task blob not null,
    step integer not null,
    lane integer not null,
    policy integer not null,
    state integer not null,
    format integer not null,
    version integer not null default 1,
    refreshed integer not null default 0,
    worker integer,
    lease integer not null default 0,
    due_at integer not null,
    expires_at integer,
    created_at integer not null,
    claimed_at integer,
    first_at integer,
    ended_at integer,
    last_delay_us integer not null default 0,
    delay_us integer not null default 0,
    failures integer not null default 0,
    rescues integer not null default 0,
    snoozes integer not null default 0,
    waiting integer not null default 0,
    parents integer not null default 0,
    children integer not null default 0,
    name text,
    destination text,
    trace text,
    -- Why the step failed finally; null unless it did.
    reason integer,
    class text,
    message text,
    payload blob,
    primary key (task, step)
) strict, without rowid;

-- Ready steps by due time, and running steps by the end of their lease. The index is not partial: SQLite does not infer
-- that `state = 1` implies `state in (1, 2)`, and would read the whole table instead.
create index holdoff_steps_due on holdoff_steps (lane, state, due_at, expires_at);
create index holdoff_steps_expires on holdoff_steps (expires_at) where state = 1 and expires_at is not null;
create index holdoff_steps_ended on holdoff_steps (lane, state, ended_at) where state in (4, 5);

-- Failed and conflicted steps, newest first, with the columns that most queries filter by. These steps are far apart in
-- the table, so the index saves reading its pages.
create index holdoff_steps_halted on holdoff_steps (task, step, state, lane, class, failures, destination, created_at)
    where state in (4, 5);

create table holdoff_edges (
    task blob not null,
    parent integer not null,
    child integer not null,
    primary key (task, parent, child)
) strict, without rowid;
create index holdoff_edges_child on holdoff_edges (task, child);

-- Finished steps, in the order in which they ended.
create table holdoff_done (
    id integer primary key,
    task blob not null,
    step integer not null,
    lane integer not null,
    policy integer not null,
    state integer not null,
    format integer not null,
    version integer not null default 1,
    worker integer,
    lease integer not null,
    created_at integer not null,
    claimed_at integer,
    ended_at integer not null,
    took_us integer not null default 0,
    failures integer not null,
    rescues integer not null,
    snoozes integer not null,
    name text,
    destination text,
    reason integer,
    class text,
    message text,
    output blob,
    unique (task, step)
) strict;

-- Every exit from running that was not a success, by the reported lease.
create table holdoff_attempts (
    task blob not null,
    step integer not null,
    lease integer not null,
    attempt integer not null,
    outcome integer not null,
    worker integer,
    started_at integer not null,
    took_us integer not null,
    delay_us integer,
    class text,
    message text,
    reason integer,
    -- What Retry-After asked for, and whether the policy (0) or Retry-After (1) determined the delay.
    retry_after_us integer,
    delay_source integer,
    primary key (task, step, lease)
) strict, without rowid;

create table holdoff_dedup (
    namespace text not null,
    key text not null,
    task blob not null,
    until integer not null,
    primary key (namespace, key)
) strict, without rowid;
create index holdoff_dedup_until on holdoff_dedup (until);

create table holdoff_signals (
    namespace text not null,
    fingerprint blob not null,
    task blob not null,
    occurrences integer not null,
    first_at integer not null,
    last_at integer not null,
    primary key (namespace, fingerprint)
) strict, without rowid;

-- Recent activity, as counted by the nodes, for dashboards. Resolution 0 has narrow buckets and is kept for minutes. Resolution 1
-- has wide buckets and is kept for a day. The column "kind" is 0 for steps by outcome, 1 for failures by class, 2 for
-- retries by attempt, 3 for operations and 4 for destinations, both by whether they failed.
create table holdoff_stats (
    resolution integer not null,
    kind integer not null,
    at integer not null,
    namespace text not null,
    name text not null,
    outcome integer not null,
    count integer not null,
    class text,
    primary key (resolution, kind, at, namespace, name, outcome)
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
    slots integer not null,
    finished integer not null
) strict, without rowid;
