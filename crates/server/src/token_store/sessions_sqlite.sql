-- A session of the dashboard is a token of its own, derived from another one at login. It ends with that token.
alter table holdoff_server_tokens add column session_of text;
create index holdoff_server_sessions on holdoff_server_tokens (session_of) where session_of is not null;
