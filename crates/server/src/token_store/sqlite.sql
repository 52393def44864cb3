-- Times are microseconds since 1970.
create table holdoff_server_tokens (
    id text primary key,
    name text not null,
    scope text not null check (scope in ('read', 'work', 'admin')),
    namespace text,
    -- SHA-256 of the secret.
    hash blob not null,
    created_at integer not null,
    expires_at integer,
    revoked_at integer,
    used_at integer
) strict;

create table holdoff_server_audit (
    id integer primary key autoincrement,
    at integer not null,
    actor text not null,
    token text,
    action text not null,
    namespace text,
    object text not null,
    count integer not null,
    request text
) strict;

create index holdoff_server_audit_at on holdoff_server_audit (at);
create index holdoff_server_audit_namespace on holdoff_server_audit (namespace, id) where namespace is not null;
