-- The writes of a holdoff worker for a batch of steps: the claim, then the successes, a transaction each.
-- The statements are those of the engine, with parameters by name; a test in bench/src/work/pgbench.rs compares them
-- with it. pgbench carries values from one statement to the next as text, hence the arrays.

with head as (
        select l.id from holdoff.lanes l cross join lateral (
            select s.due_at from holdoff.steps s
            where s.lane = l.id and s.index_state = 1 and s.state = 1 and s.due_at <= (select clock_timestamp())
                and (s.expires_at is null or s.expires_at > (select clock_timestamp()))
            order by s.due_at limit 1
        ) h
        where not l.paused
            and (cardinality(:namespaces::text[]) = 0 or l.namespace = any(:namespaces))
            and (cardinality(:queues::text[]) = 0 or l.queue = any(:queues))
            and ((l.kind = 0 and l.operation = any(:operations::text[])) or (l.kind = 1 and :http))
        order by l.priority, h.due_at limit 1
    ), claimed as (
    update holdoff.steps s set state = 2, lease = s.lease + 1, worker = :worker, claimed_at = clock_timestamp(),
        first_at = case when s.failures = 0 or s.first_at is null then clock_timestamp() else s.first_at end, leased_until = clock_timestamp() + holdoff.span(:lease_us)
    where s.ctid = any(array(
        select c.ctid from holdoff.steps c
        where c.lane = (select id from head) and c.index_state = 1 and c.state = 1 and c.due_at <= (select clock_timestamp())
            and (c.expires_at is null or c.expires_at > (select clock_timestamp()))
        order by c.due_at limit :batch for update skip locked
    ))
    returning s.task, s.step, s.lease, s.ctid::text as place
)
select coalesce(array_agg(place), '{}') as places, coalesce(array_agg(task), '{}') as tasks,
    coalesce(array_agg(step), '{}') as steps, coalesce(array_agg(lease), '{}') as leases
from claimed \gset

with gone as (
            delete from holdoff.steps s
            where s.ctid = any(:places::text[]::tid[]) and s.state = 2
                and ((s.task, s.step, s.lease) in (select * from unnest(:tasks::uuid[], :steps::int[], :leases::bigint[]))) is true
            returning s.task, s.step, s.lane, s.policy, s.worker, s.lease, s.created_at, s.claimed_at, s.failures,
                s.rescues, s.snoozes, s.name, s.destination
        ), kept as (
            insert into holdoff.done (task, step, lane, policy, state, format, worker, lease, created_at, claimed_at,
                ended_at, took_us, failures, rescues, snoozes, name, destination)
            select task, step, lane, policy, 3, 0, worker, lease, created_at, claimed_at, clock_timestamp(),
                (date_part('epoch', clock_timestamp() - claimed_at) * 1e6)::bigint, failures, rescues, snoozes, name,
                destination
            from gone
            returning task, step
        )
        select coalesce(array_agg(task), '{}'), coalesce(array_agg(step), '{}') from kept;
