-- A session of the dashboard is a token of its own, derived from another one at login. It ends with that token.
alter table holdoff.server_tokens add column session_of text;
create index server_sessions on holdoff.server_tokens (session_of) where session_of is not null;
