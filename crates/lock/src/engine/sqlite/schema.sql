-- Times are microseconds since the machine was booted, supplied by the writer; see file.rs.

-- The floor of the tokens of the whole store: the highest token of all pruned locks, or a higher one that an operator
-- has set. Also the boot that the times count from.
create table holdoff_lock_token_base (
    one integer primary key check (one = 1),
    floor integer not null,
    boot text not null
) strict;
insert into holdoff_lock_token_base values (1, 0, '');

-- A row per key. The row and its token stay after a release.
create table holdoff_locks (
    digest blob primary key,
    namespace text not null,
    key text not null,
    token integer not null,
    -- The holder; null after a release.
    nonce blob,
    owner text,
    since integer not null,
    -- When the lease expires; after a release, the time of the release.
    until integer not null,
    -- The waiter for which the lock is reserved, and the end of the reservation.
    reserved_for blob,
    reserved_until integer not null default 0
) strict, without rowid;
create index holdoff_locks_named on holdoff_locks (namespace, key);

-- The waiters: their order, and the time until which each counts as waiting.
create table holdoff_lock_waiters (
    digest blob not null,
    nonce blob not null,
    position integer not null,
    until integer not null,
    primary key (digest, nonce)
) strict, without rowid;
