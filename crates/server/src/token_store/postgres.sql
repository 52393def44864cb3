-- Times are microseconds since 1970.
create function holdoff.server_now() returns bigint language sql volatile as
    $$ select (extract(epoch from clock_timestamp()) * 1000000)::bigint $$;

create table holdoff.server_tokens (
    id text primary key,
    name text not null,
    scope text not null check (scope in ('read', 'work', 'admin')),
    namespace text,
    -- SHA-256 of the secret.
    hash bytea not null,
    created_at bigint not null,
    expires_at bigint,
    revoked_at bigint,
    used_at bigint
);

create table holdoff.server_audit (
    id bigint generated always as identity primary key,
    at bigint not null,
    actor text not null,
    token text,
    action text not null,
    namespace text,
    object text not null,
    count bigint not null,
    request text
);

create index server_audit_at on holdoff.server_audit (at);
create index server_audit_namespace on holdoff.server_audit (namespace, id) where namespace is not null;
