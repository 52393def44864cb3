-- The writes of a submission of one-step tasks. Ids increase with time, like those of holdoff.

begin;
insert into holdoff.steps (task, step, lane, policy, state, index_state, format, due_at, created_at, delay_us,
        waiting, parents, children, name, destination, trace, payload)
    select (lpad(to_hex(holdoff.micros(now)), 16, '0') || lpad(to_hex(i), 16, '0'))::uuid, 0, 1, 1, 1, 1, 0, now, now, 0,
        0, 0, 0, null, null, null, null
    from generate_series(1, :batch) i, (select clock_timestamp() as now) clock;
select pg_notify('holdoff', '');
commit;
