-- Times are timestamptz, read from clock_timestamp(). Durations are passed as microseconds. Sessions commit
-- asynchronously; operations that must be durable set synchronous_commit.

-- The floor of the tokens of the whole store: the highest token of all pruned locks, or a higher one that a recovery or
-- an operator has set. A crash may lose grants that did not wait for the disk. All of their tokens are below `ceiling`,
-- and `longest_lease` is the longest of their leases, in microseconds.
create table holdoff.lock_token_base (
    one boolean primary key default true check (one),
    floor bigint not null,
    ceiling bigint not null,
    longest_lease bigint not null
);
insert into holdoff.lock_token_base (floor, ceiling, longest_lease) values (0, 0, 0);

-- A row that the server loses in a crash, and that neither a file backup nor a standby has: its table is unlogged. If
-- it is missing, grants may be missing too. Before `grants_from` the store grants no lock. The row repeats the
-- columns that a grant of an existing lock needs, so that one read suffices. Its floor lacks the floors of prunings,
-- which concern new locks only.
create unlogged table holdoff.lock_crash_marker (
    one boolean primary key default true check (one),
    grants_from timestamptz not null,
    floor bigint not null,
    ceiling bigint not null,
    longest_lease bigint not null
);
insert into holdoff.lock_crash_marker (grants_from, floor, ceiling, longest_lease) values ('-infinity', 0, 0, 0);

-- A row per key. The row and its token stay after a release. No index contains a changing column, and pages are half
-- empty: a grant or a release writes a new row version beside the old one, and changes no index. The names of locks are
-- in another table, because every update of a row opens all indexes of its table.
create table holdoff.locks (
    digest bytea primary key,
    token bigint not null,
    -- The holder; null after a release.
    nonce uuid,
    owner text,
    since timestamptz not null,
    -- When the lease expires; after a release, the time of the release.
    until timestamptz not null,
    -- The waiter for which the lock is reserved, and the end of the reservation.
    reserved_for uuid,
    reserved_until timestamptz,
    -- Whether a waiter may be registered. The first waiter sets it in this row, where it conflicts with a release.
    has_waiters boolean not null default false
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The names of the locks, for display.
create table holdoff.lock_names (
    digest bytea primary key,
    namespace text collate "C" not null,
    key text collate "C" not null
);
create index lock_names_by_name on holdoff.lock_names (namespace, key);

-- The waiters: the time until which each counts as waiting, and the time of its arrival. Unlogged: a crash loses only
-- the order, because waiters ask again anyway.
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

-- Returns the time in microseconds since 1970.
create function holdoff.lock_now() returns bigint
    language sql volatile parallel safe
    as $$ select (date_part('epoch', clock_timestamp()) * 1000000)::bigint $$;

-- Returns the token after this one: the time, or more. `Token::next` is the model.
create function holdoff.lock_next_token(token bigint, floor bigint) returns bigint
    language sql volatile parallel safe
    as $$ select greatest(token + 1, floor + 1, holdoff.lock_now()) $$;

-- Handles the loss of the server's memory by a crash, a failover to a standby, or a restore of its files. Grants may be
-- lost with it, so the function does three things before the store grants any lock:
--
-- 1. It sets a time by which every lease that may have been lost has expired: until then, a client that considers its
--    lock valid is right. By that time the clock has also passed the new floor. A token that is ahead of the clock
--    might be repeated by a restore.
-- 2. It removes the holders whose leases have expired: the lock may have been granted again, and that grant lost. A
--    renewal by the earlier holder would make its lower token valid again.
-- 3. It raises the floor to the ceiling. After a crash, all lost tokens are below it, whatever the clock shows. After a
--    failover or a restore the ceiling is too old: the lost tokens are times of the past, and the time orders them.
--
-- All three are on the disk before any transaction can see them.
create function holdoff.lock_recover() returns timestamptz
    language plpgsql
    as $$
declare
    since timestamptz;
    base holdoff.lock_token_base;
begin
    perform set_config('synchronous_commit', 'on', true);
    -- One session at a time. Grants in progress have read no floor yet, because they call this function first.
    lock table holdoff.lock_token_base in share row exclusive mode;
    select m.grants_from into since from holdoff.lock_crash_marker m where m.one;
    if found then
        return since;
    end if;
    update holdoff.locks l set nonce = null, owner = null, reserved_for = null
        where l.nonce is not null and l.until <= clock_timestamp();
    update holdoff.lock_token_base f set floor = greatest(f.floor, f.ceiling) returning * into base;
    -- If the clock was set back, it may take any time to pass the floor. The ceiling is at most three seconds ahead.
    since := clock_timestamp() + interval '1 microsecond'
        * greatest(base.longest_lease, least(base.floor - holdoff.lock_now(), 3000000));
    insert into holdoff.lock_crash_marker (grants_from, floor, ceiling, longest_lease)
        values (since, base.floor, base.ceiling, base.longest_lease);
    return since;
end
$$;

-- Ensures that `lock_recover` covers a grant that is being made: that its wait is at least as long as the lease, and the
-- ceiling above the token. The grant then need not wait for the disk, which would take longer than the rest of the
-- grant: a crash may lose it without harm. The wait and the ceiling must themselves be on the disk. These grants
-- therefore wait for the disk: the first one with a longer lease than any before; every one with a lease of more than a
-- minute, because no client should have to wait for longer than that after a crash; and the first one in each two
-- seconds, which raises the ceiling to three seconds above its token.
create function holdoff.lock_cover_grant(
    a_lease bigint, a_token bigint, a_longest_lease bigint, a_ceiling bigint
) returns void
    language plpgsql
    as $$
declare
    raised holdoff.lock_token_base;
begin
    if a_lease > a_longest_lease or a_token > a_ceiling - 1000000 then
        perform set_config('synchronous_commit', 'on', true);
        update holdoff.lock_token_base f
            set longest_lease = case when a_lease <= 60000000 then greatest(f.longest_lease, a_lease)
                    else f.longest_lease end,
                ceiling = greatest(f.ceiling, case when a_token > f.ceiling - 1000000 then a_token + 3000000 end)
            where f.one and (f.longest_lease < a_lease and a_lease <= 60000000 or a_token > f.ceiling - 1000000)
            returning * into raised;
        if found then
            update holdoff.lock_crash_marker m set longest_lease = raised.longest_lease, ceiling = raised.ceiling
                where m.one;
        end if;
    end if;
end
$$;

-- Grants the lock, or returns its holder and registers the waiter; in both cases returns the number of waiters. A
-- refusal changes only the waiters, and never waits for the disk.
--
-- The lock must not be released between a read of its row and the registration of a waiter: the waiter would not be
-- notified. The first waiter changes the row, so a plain release precedes it or fails. Later waiters leave the row
-- alone, because the holder may want to renew it: they share an advisory lock while they register, and a release of an
-- lock with waiters takes it exclusively. It waits only for their short transactions.
create function holdoff.lock_try(
    a_digest bytea, a_advisory_id bigint, a_namespace text, a_key text, a_nonce uuid, a_owner text,
    a_lease bigint, a_waits bigint, a_most_waiters bigint,
    out granted bigint, out holder uuid, out owner text, out token bigint,
    out held_us bigint, out free_us bigint, out waiting bigint
)
    language plpgsql
    as $$
#variable_conflict use_column
declare
    -- The lease counts from the request, also if the function has to wait for another transaction.
    moment timestamptz := clock_timestamp();
    lock_row holdoff.locks;
    grants_from timestamptz;
    longest_lease bigint;
    ceiling bigint;
begin
    select m.grants_from, f.longest_lease, f.ceiling into grants_from, longest_lease, ceiling
        from holdoff.lock_crash_marker m, holdoff.lock_token_base f where m.one and f.one;
    if not found then
        grants_from := greatest(holdoff.lock_recover(), moment);
    end if;
    -- A session that has just recovered the store must not grant before that is on the disk: hence not only `>`.
    if grants_from >= moment then
        waiting := 0;
        free_us := greatest(extract(epoch from grants_from - clock_timestamp()) * 1000000, 0);
        return;
    end if;
    loop
        update holdoff.locks l
            set token = case when l.nonce = a_nonce then l.token
                    else holdoff.lock_next_token(l.token, f.floor) end,
                since = case when l.nonce = a_nonce then l.since else moment end,
                until = case when l.nonce = a_nonce
                    then greatest(l.until, moment + a_lease * interval '1 microsecond')
                    else moment + a_lease * interval '1 microsecond' end,
                nonce = a_nonce,
                owner = a_owner,
                reserved_for = null
            from holdoff.lock_token_base f
            where f.one and l.digest = a_digest
                and case when l.nonce is null then l.reserved_for is null or l.reserved_for = a_nonce or l.reserved_until <= moment
                    else l.nonce = a_nonce or l.until <= moment end
            returning l.token into granted;
        if found then
            perform holdoff.lock_cover_grant(a_lease, granted, longest_lease, ceiling);
            delete from holdoff.lock_waiters w
                where w.digest = a_digest and (w.nonce = a_nonce or w.until <= moment);
            select count(*) into waiting from (
                select from holdoff.lock_waiters w where w.digest = a_digest limit a_most_waiters
            ) others;
            return;
        end if;

        if a_waits is not null then
            perform pg_advisory_xact_lock_shared(a_advisory_id);
        end if;
        moment := clock_timestamp();
        select * into lock_row from holdoff.locks l where l.digest = a_digest;
        if not found then
            insert into holdoff.locks (digest, token, nonce, owner, since, until)
                select a_digest, holdoff.lock_next_token(0, f.floor), a_nonce, a_owner, moment,
                    moment + a_lease * interval '1 microsecond'
                from holdoff.lock_token_base f
                where f.one
                on conflict do nothing
                returning token into granted;
            if found then
                insert into holdoff.lock_names (digest, namespace, key) values (a_digest, a_namespace, a_key)
                    on conflict do nothing;
                -- Another session may have pruned this lock after the token base was read.
                update holdoff.locks l set token = holdoff.lock_next_token(l.token, f.floor)
                    from holdoff.lock_token_base f where f.one and l.digest = a_digest and l.token <= f.floor
                    returning l.token into lock_row.token;
                if found then
                    granted := lock_row.token;
                end if;
                perform holdoff.lock_cover_grant(a_lease, granted, longest_lease, ceiling);
                return;
            end if;
            continue;
        end if;
        continue when case when lock_row.nonce is null
            then lock_row.reserved_for is null or lock_row.reserved_for = a_nonce or lock_row.reserved_until <= moment
            else lock_row.nonce = a_nonce or lock_row.until <= moment end;
        if a_waits is not null and not lock_row.has_waiters then
            update holdoff.locks l set has_waiters = true
                where l.digest = a_digest and l.nonce is not distinct from lock_row.nonce and l.token = lock_row.token;
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
        holder := lock_row.nonce;
        owner := lock_row.owner;
        token := lock_row.token;
        held_us := extract(epoch from moment - lock_row.since) * 1000000;
        free_us := extract(epoch from
            case when lock_row.nonce is null then lock_row.reserved_until else lock_row.until end - moment) * 1000000;
        return;
    end loop;
end
$$;

-- Releases the lock. If a crash loses a release, the next holder waits until the lease expires; there is no other harm.
-- Without waiters it sends no notification, which would cost more than the rest of the release.
create function holdoff.lock_release(
    a_digest bytea, a_advisory_id bigint, a_nonce uuid, a_token bigint, a_reservation bigint
) returns boolean
    language plpgsql
    as $$
declare
    moment timestamptz;
    reserved uuid;
begin
    perform pg_advisory_xact_lock(a_advisory_id);
    moment := clock_timestamp();
    update holdoff.locks l
        set nonce = null, owner = null, until = moment,
            reserved_for = (
                select w.nonce from holdoff.lock_waiters w
                where w.digest = a_digest and w.until > moment and w.nonce <> a_nonce
                order by w.arrived, w.nonce limit 1
            ),
            reserved_until = moment + a_reservation * interval '1 microsecond'
        where l.digest = a_digest and l.nonce = a_nonce and l.token = a_token
        returning l.reserved_for into reserved;
    if not found then
        return false;
    end if;
    if reserved is null then
        update holdoff.locks l set has_waiters = false where l.digest = a_digest and l.has_waiters;
    else
        perform pg_notify('holdoff_locks', encode(a_digest, 'hex') || coalesce(':' || reserved, ''));
    end if;
    return true;
end
$$;

-- Removes all state of a nonce: its registration as a waiter, its reservation, and its lock. As with a release, a loss
-- of this change is harmless.
create function holdoff.lock_withdraw(
    a_digest bytea, a_advisory_id bigint, a_nonce uuid, a_reservation bigint
) returns void
    language plpgsql
    as $$
declare
    moment timestamptz;
    reserved uuid;
begin
    perform pg_advisory_xact_lock(a_advisory_id);
    moment := clock_timestamp();
    update holdoff.locks l
        set until = case when l.nonce = a_nonce then moment else l.until end,
            nonce = null, owner = null,
            reserved_for = (
                select w.nonce from holdoff.lock_waiters w
                where w.digest = a_digest and w.until > moment and w.nonce <> a_nonce
                order by w.arrived, w.nonce limit 1
            ),
            reserved_until = moment + a_reservation * interval '1 microsecond'
        where l.digest = a_digest and (l.nonce = a_nonce or l.nonce is null and l.reserved_for = a_nonce)
        returning l.reserved_for into reserved;
    if found then
        perform pg_notify('holdoff_locks', encode(a_digest, 'hex') || coalesce(':' || reserved, ''));
    end if;
    -- The lock's row first, then its waiters, as in a grant: this order prevents deadlocks.
    delete from holdoff.lock_waiters w where w.digest = a_digest and w.nonce = a_nonce;
end
$$;

-- Takes the lock from its holder, and returns the holder if its lease has not expired. Waits for the disk.
create function holdoff.lock_force_release(
    a_digest bytea, a_advisory_id bigint, a_reservation bigint,
    out holder uuid, out owner text, out token bigint, out held_us bigint, out ends_us bigint
)
    language plpgsql
    as $$
#variable_conflict use_column
declare
    moment timestamptz;
    had holdoff.locks;
    reserved uuid;
begin
    perform pg_advisory_xact_lock(a_advisory_id), set_config('synchronous_commit', 'on', true);
    select * into had from holdoff.locks l where l.digest = a_digest and l.nonce is not null for update;
    if not found then
        return;
    end if;
    moment := clock_timestamp();
    update holdoff.locks l
        set token = holdoff.lock_next_token(l.token, f.floor),
            nonce = null, owner = null, until = moment,
            reserved_for = (
                select w.nonce from holdoff.lock_waiters w
                where w.digest = a_digest and w.until > moment and w.nonce <> had.nonce
                order by w.arrived, w.nonce limit 1
            ),
            reserved_until = moment + a_reservation * interval '1 microsecond'
        from holdoff.lock_token_base f
        where f.one and l.digest = a_digest
        returning l.reserved_for into reserved;
    perform pg_notify('holdoff_locks', encode(a_digest, 'hex') || coalesce(':' || reserved, ''));
    if had.until > moment then
        holder := had.nonce;
        owner := had.owner;
        token := had.token;
        held_us := extract(epoch from moment - had.since) * 1000000;
        ends_us := extract(epoch from had.until - moment) * 1000000;
    end if;
end
$$;

-- Prunes locks. The same transaction records the highest of their tokens: a lock that is created again, even at the
-- same time, starts above it.
create function holdoff.lock_prune(a_idle bigint, a_limit bigint) returns bigint
    language plpgsql
    as $$
declare
    moment timestamptz := clock_timestamp();
    before timestamptz := moment - a_idle * interval '1 microsecond';
    pruned bigint;
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
            where greatest(o.until, case when o.reserved_for is not null then o.reserved_until end) <= before
                and not exists (select from holdoff.lock_waiters w where w.digest = o.digest and w.until > moment)
            limit a_limit for update skip locked
        )
        returning l.digest, l.token
    ), unnamed as (
        delete from holdoff.lock_names n using gone where n.digest = gone.digest
    )
    select count(*), max(token) into pruned, highest from gone;
    if pruned > 0 then
        update holdoff.lock_token_base set floor = greatest(floor, highest);
    end if;
    return pruned;
end
$$;
