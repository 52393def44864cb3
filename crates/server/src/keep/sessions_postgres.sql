-- A session of the pages is a token of its own, made from another when somebody logs in; it ends with that one.
alter table holdoff.server_tokens add column session_of text;
create index server_sessions on holdoff.server_tokens (session_of) where session_of is not null;
