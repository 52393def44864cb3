-- Times are timestamptz, read from clock_timestamp(); spans travel as microseconds. Sessions do not wait for the disk;
-- what must be there says so.

-- What the tokens of the whole store stand on: the era, and the highest token that was ever forgotten. And the longest
-- lease, in microseconds, that was ever granted without waiting for the disk: for so long a crash may have forgotten a
-- holder.
create table holdoff.lock_facts (
    one boolean primary key default true check (one),
    era bigint not null,
    floor bigint not null,
    longest bigint not null
);
insert into holdoff.lock_facts (era, floor, longest) values (0, 0, 0);

-- What the server forgets in a crash, and what neither a backup of its files nor a standby has: a row in a table that is not
-- in the log. Where it is missing, grants may be missing too. Before `settled` nobody is granted anything. It repeats what a
-- grant must know of the facts, so that one look does for both.
create unlogged table holdoff.lock_memory (
    one boolean primary key default true check (one),
    settled timestamptz not null,
    era bigint not null,
    longest bigint not null
);
insert into holdoff.lock_memory (settled, era, longest) values ('-infinity', 0, 0);

-- A row per key; it stays when the lock is let go, and so does its token. No index mentions what changes, and pages are
-- half empty: a grant or a release is a new version of the row beside the old one, and touches no index. What a lock is
-- called stands elsewhere, since every index of a table is opened by whoever changes a row.
create table holdoff.locks (
    digest bytea primary key,
    token bigint not null,
    -- Who has it; nobody if it was let go.
    nonce uuid,
    owner text,
    since timestamptz not null,
    -- When the lease ends; when it was let go, if it was.
    until timestamptz not null,
    -- For whom it is kept, and until when.
    next uuid,
    next_until timestamptz,
    -- Whether somebody may have noted that it waits. The first who does says so here, where it meets whoever lets go.
    awaited boolean not null default false
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- What the locks are called, for people.
create table holdoff.lock_names (
    digest bytea primary key,
    namespace text collate "C" not null,
    key text collate "C" not null
);
create index lock_names_by_name on holdoff.lock_names (namespace, key);

-- Who waits, for how long it counts as waiting, and since when. Not in the log of the server: a crash loses nothing but
-- politeness, since those who wait ask again anyway.
create unlogged table holdoff.lock_waiters (
    digest bytea not null,
    nonce uuid not null,
    arrived timestamptz not null,
    until timestamptz not null,
    primary key (digest, nonce)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- The token after this one. The era stands above forty bits.
create function holdoff.lock_next_token(token bigint, era bigint, floor bigint) returns bigint
    language sql immutable parallel safe
    as $$ select greatest(greatest(token, floor) + 1, (era << 40) + 1) $$;

-- The server has forgotten its memory: a crash, a failover to a standby, or files from a backup. Grants may be gone with
-- it, so two things are done before anybody is granted anything. The era is raised: whatever was forgotten lies below
-- every token to come. And all leases that may have been forgotten are waited for, so that whoever believes to
-- have a lock is right until then. Both are on the disk before anybody can see them.
create function holdoff.lock_awake() returns timestamptz
    language plpgsql
    as $$
declare
    since timestamptz;
    facts holdoff.lock_facts;
begin
    perform set_config('synchronous_commit', 'on', true);
    -- One at a time; and grants under way have read no era yet, for they come here first.
    lock table holdoff.lock_facts in share row exclusive mode;
    select m.settled into since from holdoff.lock_memory m where m.one;
    if found then
        return since;
    end if;
    update holdoff.lock_facts f set era = f.era + 1 returning * into facts;
    since := clock_timestamp() + facts.longest * interval '1 microsecond';
    insert into holdoff.lock_memory (settled, era, longest) values (since, facts.era, facts.longest);
    return since;
end
$$;

-- Sees to it that a lease that is being granted is outlived by what `lock_awake` waits for. One of at most a minute then
-- need not wait for the disk, which would take longer than all the rest: a crash may forget it, harmlessly. How long that
-- takes must itself be on the disk, so the first grant with a longer lease than any before waits, as does every grant
-- with a lease of more than a minute: nobody should have to wait for so long after a crash.
create function holdoff.lock_outlive(a_lease bigint, a_longest bigint) returns void
    language plpgsql
    as $$
begin
    if a_lease > a_longest then
        perform set_config('synchronous_commit', 'on', true);
        update holdoff.lock_facts f set longest = a_lease
            where f.one and f.longest < a_lease and a_lease <= 60000000;
        if found then
            update holdoff.lock_memory m set longest = a_lease where m.one;
        end if;
    end if;
end
$$;

-- Grants the lock, or says who has it and notes who waits; in either case, how many wait. A refusal changes only who waits, and never waits for the
-- disk.
--
-- What must not happen is that the lock is let go between a look at it and the note that somebody waits: nobody would be
-- told. The first who notes it changes the row, so that a plain release comes before it or is refused. The others
-- leave the row alone, which the holder may want to renew: those who note share an advisory lock, and whoever lets go
-- what is awaited needs it alone, for as long as their short transactions last.
create function holdoff.lock_try(
    a_digest bytea, a_lane bigint, a_namespace text, a_key text, a_nonce uuid, a_owner text,
    a_lease bigint, a_waits bigint, a_most_waiters bigint,
    out granted bigint, out holder uuid, out owner text, out token bigint,
    out held_us bigint, out free_us bigint, out waiting bigint
)
    language plpgsql
    as $$
#variable_conflict use_column
declare
    -- The lease counts from when it was asked for, also if another's transaction has to be waited for.
    moment timestamptz := clock_timestamp();
    seen holdoff.locks;
    settled timestamptz;
    longest bigint;
begin
    select m.settled, f.longest into settled, longest
        from holdoff.lock_memory m, holdoff.lock_facts f where m.one and f.one;
    if not found then
        settled := greatest(holdoff.lock_awake(), moment);
    end if;
    -- Whoever has just raised the era must not grant anything before that is on the disk: hence not only `>`.
    if settled >= moment then
        waiting := 0;
        free_us := greatest(extract(epoch from settled - clock_timestamp()) * 1000000, 0);
        return;
    end if;
    loop
        update holdoff.locks l
            set token = case when l.nonce = a_nonce then l.token
                    else holdoff.lock_next_token(l.token, f.era, f.floor) end,
                since = case when l.nonce = a_nonce then l.since else moment end,
                until = case when l.nonce = a_nonce
                    then greatest(l.until, moment + a_lease * interval '1 microsecond')
                    else moment + a_lease * interval '1 microsecond' end,
                nonce = a_nonce,
                owner = a_owner,
                next = null
            from holdoff.lock_facts f
            where f.one and l.digest = a_digest
                and case when l.nonce is null then l.next is null or l.next = a_nonce or l.next_until <= moment
                    else l.nonce = a_nonce or l.until <= moment end
            returning l.token into granted;
        if found then
            perform holdoff.lock_outlive(a_lease, longest);
            delete from holdoff.lock_waiters w
                where w.digest = a_digest and (w.nonce = a_nonce or w.until <= moment);
            select count(*) into waiting from (
                select from holdoff.lock_waiters w where w.digest = a_digest limit a_most_waiters
            ) others;
            return;
        end if;

        if a_waits is not null then
            perform pg_advisory_xact_lock_shared(a_lane);
        end if;
        moment := clock_timestamp();
        select * into seen from holdoff.locks l where l.digest = a_digest;
        if not found then
            insert into holdoff.locks (digest, token, nonce, owner, since, until)
                select a_digest, holdoff.lock_next_token(0, f.era, f.floor), a_nonce, a_owner, moment,
                    moment + a_lease * interval '1 microsecond'
                from holdoff.lock_facts f
                where f.one
                on conflict do nothing
                returning token into granted;
            if found then
                insert into holdoff.lock_names (digest, namespace, key) values (a_digest, a_namespace, a_key)
                    on conflict do nothing;
                perform holdoff.lock_outlive(a_lease, longest);
                -- Somebody may have forgotten this very lock after the facts were read.
                update holdoff.locks l set token = holdoff.lock_next_token(l.token, f.era, f.floor)
                    from holdoff.lock_facts f where f.one and l.digest = a_digest and l.token <= f.floor
                    returning l.token into seen.token;
                if found then
                    granted := seen.token;
                end if;
                return;
            end if;
            continue;
        end if;
        continue when case when seen.nonce is null
            then seen.next is null or seen.next = a_nonce or seen.next_until <= moment
            else seen.nonce = a_nonce or seen.until <= moment end;
        if a_waits is not null and not seen.awaited then
            update holdoff.locks l set awaited = true
                where l.digest = a_digest and l.nonce is not distinct from seen.nonce and l.token = seen.token;
            continue when not found;
        end if;

        select count(*) into waiting from (
            select from holdoff.lock_waiters w
            where w.digest = a_digest and w.until > moment and w.nonce <> a_nonce limit a_most_waiters
        ) others;
        if a_waits is not null and waiting < a_most_waiters then
            insert into holdoff.lock_waiters as w (digest, nonce, arrived, until)
                values (a_digest, a_nonce, moment, moment + a_waits * interval '1 microsecond')
                on conflict (digest, nonce) do update set until = greatest(w.until, excluded.until);
            waiting := waiting + 1;
        end if;
        holder := seen.nonce;
        owner := seen.owner;
        token := seen.token;
        held_us := extract(epoch from moment - seen.since) * 1000000;
        free_us := extract(epoch from
            case when seen.nonce is null then seen.next_until else seen.until end - moment) * 1000000;
        return;
    end loop;
end
$$;

-- Lets go. A release that a crash forgets delays the next holder until the lease ends, and harms nobody. Without anybody
-- who waits, nobody is told: telling costs more than all the rest.
create function holdoff.lock_release(
    a_digest bytea, a_lane bigint, a_nonce uuid, a_token bigint, a_headstart bigint
) returns boolean
    language plpgsql
    as $$
declare
    moment timestamptz;
    kept uuid;
begin
    perform pg_advisory_xact_lock(a_lane);
    moment := clock_timestamp();
    update holdoff.locks l
        set nonce = null, owner = null, until = moment,
            next = (
                select w.nonce from holdoff.lock_waiters w
                where w.digest = a_digest and w.until > moment and w.nonce <> a_nonce
                order by w.arrived, w.nonce limit 1
            ),
            next_until = moment + a_headstart * interval '1 microsecond'
        where l.digest = a_digest and l.nonce = a_nonce and l.token = a_token
        returning l.next into kept;
    if not found then
        return false;
    end if;
    if kept is null then
        update holdoff.locks l set awaited = false where l.digest = a_digest and l.awaited;
    else
        perform pg_notify('holdoff_locks', encode(a_digest, 'hex') || coalesce(':' || kept, ''));
    end if;
    return true;
end
$$;

-- Wipes out a nonce: it waits no more, it is kept nothing, it has nothing. As with a release, forgetting it is harmless.
create function holdoff.lock_withdraw(
    a_digest bytea, a_lane bigint, a_nonce uuid, a_headstart bigint
) returns void
    language plpgsql
    as $$
declare
    moment timestamptz;
    kept uuid;
begin
    perform pg_advisory_xact_lock(a_lane);
    moment := clock_timestamp();
    update holdoff.locks l
        set until = case when l.nonce = a_nonce then moment else l.until end,
            nonce = null, owner = null,
            next = (
                select w.nonce from holdoff.lock_waiters w
                where w.digest = a_digest and w.until > moment and w.nonce <> a_nonce
                order by w.arrived, w.nonce limit 1
            ),
            next_until = moment + a_headstart * interval '1 microsecond'
        where l.digest = a_digest and (l.nonce = a_nonce or l.nonce is null and l.next = a_nonce)
        returning l.next into kept;
    if found then
        perform pg_notify('holdoff_locks', encode(a_digest, 'hex') || coalesce(':' || kept, ''));
    end if;
    -- The lock first, then who waits for it, as in a grant: no two wait for each other.
    delete from holdoff.lock_waiters w where w.digest = a_digest and w.nonce = a_nonce;
end
$$;

-- Takes the lock away, and says from whom if its lease was not over. An operator waits for the disk.
create function holdoff.lock_force(
    a_digest bytea, a_lane bigint, a_headstart bigint,
    out holder uuid, out owner text, out token bigint, out held_us bigint, out ends_us bigint
)
    language plpgsql
    as $$
#variable_conflict use_column
declare
    moment timestamptz;
    had holdoff.locks;
    kept uuid;
begin
    perform pg_advisory_xact_lock(a_lane), set_config('synchronous_commit', 'on', true);
    select * into had from holdoff.locks l where l.digest = a_digest and l.nonce is not null for update;
    if not found then
        return;
    end if;
    moment := clock_timestamp();
    update holdoff.locks l
        set token = holdoff.lock_next_token(l.token, f.era, f.floor),
            nonce = null, owner = null, until = moment,
            next = (
                select w.nonce from holdoff.lock_waiters w
                where w.digest = a_digest and w.until > moment and w.nonce <> had.nonce
                order by w.arrived, w.nonce limit 1
            ),
            next_until = moment + a_headstart * interval '1 microsecond'
        from holdoff.lock_facts f
        where f.one and l.digest = a_digest
        returning l.next into kept;
    perform pg_notify('holdoff_locks', encode(a_digest, 'hex') || coalesce(':' || kept, ''));
    if had.until > moment then
        holder := had.nonce;
        owner := had.owner;
        token := had.token;
        held_us := extract(epoch from moment - had.since) * 1000000;
        ends_us := extract(epoch from had.until - moment) * 1000000;
    end if;
end
$$;

-- Forgets locks. The highest of their tokens is kept in the same transaction: whoever makes one of them anew, even while
-- this goes on, starts above it.
create function holdoff.lock_prune(a_idle bigint, a_limit bigint) returns bigint
    language plpgsql
    as $$
declare
    moment timestamptz := clock_timestamp();
    before timestamptz := moment - a_idle * interval '1 microsecond';
    forgotten bigint;
    highest bigint;
begin
    perform set_config('synchronous_commit', 'on', true);
    delete from holdoff.lock_waiters w where (w.digest, w.nonce) in (
        select o.digest, o.nonce from holdoff.lock_waiters o where o.until <= moment limit a_limit
        for update skip locked
    );
    with gone as (
        delete from holdoff.locks l where l.digest in (
            select o.digest from holdoff.locks o
            where greatest(o.until, case when o.next is not null then o.next_until end) <= before
                and not exists (select from holdoff.lock_waiters w where w.digest = o.digest and w.until > moment)
            limit a_limit for update skip locked
        )
        returning l.digest, l.token
    ), unnamed as (
        delete from holdoff.lock_names n using gone where n.digest = gone.digest
    )
    select count(*), max(token) into forgotten, highest from gone;
    if forgotten > 0 then
        update holdoff.lock_facts set floor = greatest(floor, highest);
    end if;
    return forgotten;
end
$$;
