-- Times are microseconds since the machine was started, given by whoever writes; see file.rs.

-- What the tokens of the whole store stand on: the era, and the highest token that was ever forgotten. And which start of
-- which machine the times count from.
create table holdoff_lock_facts (
    one integer primary key check (one = 1),
    era integer not null,
    floor integer not null,
    boot text not null
) strict;
insert into holdoff_lock_facts values (1, 0, 0, '');

-- A row per key; it stays when the lock is let go, and so does its token.
create table holdoff_locks (
    digest blob primary key,
    namespace text not null,
    key text not null,
    token integer not null,
    -- Who has it; nobody if it was let go.
    nonce blob,
    owner text,
    since integer not null,
    -- When the lease ends; when it was let go, if it was.
    until integer not null,
    -- For whom it is kept, and until when.
    next blob,
    next_until integer not null default 0
) strict, without rowid;
create index holdoff_locks_named on holdoff_locks (namespace, key);

-- Who waits, in which order, and for how long it counts as waiting.
create table holdoff_lock_waiters (
    digest blob not null,
    nonce blob not null,
    place integer not null,
    until integer not null,
    primary key (digest, nonce)
) strict, without rowid;
