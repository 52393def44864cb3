-- Times are timestamptz, read from clock_timestamp(). The time zone of a session does not affect them.

-- The properties that decide which worker may claim a step, and in which order. A step carries only the number of its
-- lane, so that the one index for claims stays small, and a paused lane costs nothing.
create table holdoff.lanes (
    id integer generated always as identity primary key,
    namespace text not null,
    queue text not null,
    operation text not null,
    kind smallint not null,
    priority smallint not null,
    paused boolean not null default false,
    -- Since when no submission may use the lane without looking it up again, because it had no steps.
    retired_at timestamptz,
    unique (namespace, queue, operation, kind, priority)
);

-- Paused queues and operations, so that lanes created later are paused too.
create table holdoff.paused (
    namespace text not null,
    kind smallint not null,
    name text not null,
    since timestamptz not null default clock_timestamp(),
    primary key (namespace, kind, name)
);

-- Compiled policies by content and name. A step keeps the policy it was submitted with.
create table holdoff.policies (
    id integer generated always as identity primary key,
    hash bytea not null,
    name text not null,
    compiled jsonb not null,
    deployed_at timestamptz not null default clock_timestamp(),
    unique (hash, name)
);

-- Policy files by content, with the author of each, and the time and the author of its last activation. One of them is
-- active.
create table holdoff.policy_sets (
    hash bytea primary key,
    file text not null,
    deployed_at timestamptz not null default clock_timestamp(),
    deployed_by text,
    active boolean not null,
    activated_at timestamptz,
    activated_by text
);

-- Workers by name, with the last report of each, so that workers that are gone can be removed.
create table holdoff.workers (
    id integer generated always as identity primary key,
    name text not null,
    started_at timestamptz not null default clock_timestamp(),
    seen_at timestamptz not null default clock_timestamp()
);
create index workers_name on holdoff.workers (name);

-- Unfinished steps. Rows are short-lived. Pages less than half full leave room for the new version that a claim writes,
-- which then needs no new index entries (a heap-only tuple), and vacuum runs early.
create table holdoff.steps (
    task uuid not null,
    step integer not null,
    lane integer not null,
    policy integer not null,
    state smallint not null,
    -- The part of the index the step is in: 0 none (blocked), 1 to be claimed, or claimed and never renewed, 2 failed
    -- or conflicted, 3 held by a worker that has renewed its lease. No index mentions the state, so a claim changes no
    -- index.
    index_state smallint not null,
    format smallint not null,
    version smallint not null default 1,
    refreshed boolean not null default false,
    worker integer,
    lease bigint not null default 0,
    due_at timestamptz not null,
    leased_until timestamptz,
    expires_at timestamptz,
    created_at timestamptz not null,
    claimed_at timestamptz,
    first_at timestamptz,
    ended_at timestamptz,
    last_delay_us bigint not null default 0,
    delay_us bigint not null default 0,
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
    reason smallint,
    class text,
    message text,
    payload bytea,
    primary key (task, step)
) with (
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 0
);

-- Steps to be claimed by due time, and renewed leases by their end.
create index steps_due on holdoff.steps (lane, index_state, due_at) where index_state in (1, 3);
create index steps_expires on holdoff.steps (expires_at) where index_state = 1 and expires_at is not null;
create index steps_ended on holdoff.steps (lane, ended_at) where index_state = 2;

-- Failed and conflicted steps, newest first. Like the other indexes it does not mention the state, so a claim changes
-- nothing in it, and only failed and conflicted steps cost an entry.
create index steps_halted on holdoff.steps (task, step) where index_state = 2;

create table holdoff.edges (
    task uuid not null,
    parent integer not null,
    child integer not null,
    primary key (task, parent, child)
);
create index edges_child on holdoff.edges (task, child);

-- Finished steps. Rows are only inserted, and pruned by age and size.
create table holdoff.done (
    task uuid not null,
    step integer not null,
    lane integer not null,
    policy integer not null,
    state smallint not null,
    format smallint not null,
    version smallint not null default 1,
    worker integer,
    lease bigint not null,
    created_at timestamptz not null,
    claimed_at timestamptz,
    ended_at timestamptz not null,
    took_us bigint not null default 0,
    failures integer not null,
    rescues integer not null,
    snoozes integer not null,
    name text,
    destination text,
    reason smallint,
    class text,
    message text,
    output bytea,
    primary key (task, step)
);
create index done_ended on holdoff.done using brin (ended_at) with (pages_per_range = 16);

-- Every exit from running that was not a success. The reported lease is part of the key, so that a duplicate report is
-- recognised.
create table holdoff.attempts (
    task uuid not null,
    step integer not null,
    lease bigint not null,
    attempt integer not null,
    outcome smallint not null,
    worker integer,
    started_at timestamptz not null,
    took_us bigint not null,
    delay_us bigint,
    class text,
    message text,
    reason smallint,
    -- What Retry-After asked for, and whether the policy (0) or Retry-After (1) determined the delay.
    retry_after_us bigint,
    delay_source smallint,
    primary key (task, step, lease)
);

create table holdoff.dedup (
    namespace text not null,
    key text not null,
    task uuid not null,
    until timestamptz not null,
    primary key (namespace, key)
);
create index dedup_until on holdoff.dedup (until);

-- Signals by fingerprint, with the task that handles each.
create table holdoff.signals (
    namespace text not null,
    fingerprint bytea not null,
    task uuid not null,
    occurrences bigint not null,
    first_at timestamptz not null default clock_timestamp(),
    last_at timestamptz not null default clock_timestamp(),
    primary key (namespace, fingerprint)
) with (fillfactor = 50);

-- Recent activity, as counted by the nodes, for dashboards. Resolution 0 has narrow buckets and is kept for minutes. Resolution 1
-- has wide buckets and is kept for a day. The column "kind" is 0 for steps by outcome, 1 for failures by class, 2 for
-- retries by attempt, 3 for operations and 4 for destinations, both by whether they failed.
create table holdoff.stats (
    resolution smallint not null,
    kind smallint not null,
    at timestamptz not null,
    namespace text not null,
    name text not null,
    outcome smallint not null,
    count bigint not null,
    class text,
    primary key (resolution, kind, at, namespace, name, outcome)
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
    slots bigint not null,
    finished bigint not null
) with (fillfactor = 50);

create function holdoff.micros(moment timestamptz) returns bigint
    language sql immutable strict parallel safe
    as $$ select (extract(epoch from moment) * 1000000)::bigint $$;

create function holdoff.span(us bigint) returns interval
    language sql immutable strict parallel safe
    as $$ select us * interval '1 microsecond' $$;
