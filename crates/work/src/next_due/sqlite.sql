(
-- The one decision, as SQLite makes it: `docs/policy.md` has the arithmetic, and `Compiled::decide` is the original.
-- No step exceeds 63 bits, for SQLite would turn it into a float. `materialized` keeps each step from being worked
-- out again wherever the next ones mention it.
with delay_input as materialized (
    select
        {compiled} as policy,
        max({attempt}, 1) as tries,
        min(coalesce({last_delay}, 0), 31536000000000) as last_us,
        {roll} as roll,
        -- Null stays null: no Retry-After.
        min(max({retry_after}, 0), 31536000000000) as asked_us
),
delay_rule as materialized (
    select
        tries, last_us, roll, asked_us,
        policy ->> '$.cap_us' as cap_us,
        policy ->> '$.low_ppm' as low_ppm,
        policy ->> '$.high_ppm' as high_ppm,
        policy ->> '$.retry_after.limit_us' as limit_us,
        policy ->> '$.retry_after.spread_us' as spread_us,
        policy ->> '$.retry_after.beyond' as beyond,
        policy ->> '$.shape.decorrelated.base_us' as base_us,
        policy ->> '$.shape.line.first_us' as first_us,
        policy ->> '$.shape.line.step_us' as step_us,
        policy ->> '$.shape.line.top_us' as top_us,
        policy ->> ('$.shape.table[' || (min(tries, json_array_length(policy, '$.shape.table')) - 1) || ']')
            as entry_us
    from delay_input
    -- No row is no further try. What is not a compiled policy of version 1 must not read like that: it is an error.
    where case policy ->> '$.version' when 1 then tries < policy ->> '$.attempts' else json('not version 1') end
),
delay_ceiling as materialized (
    select
        last_us, roll, asked_us, cap_us, low_ppm, high_ppm, limit_us, spread_us, beyond, base_us,
        -- Asks whether the line has reached its top before it multiplies, which might overflow.
        case
            when entry_us is not null then entry_us
            when tries - 1 > (top_us - first_us) / nullif(step_us, 0) then top_us
            else first_us + step_us * (tries - 1)
        end as ceiling_us
    from delay_rule
    where asked_us is null or asked_us <= limit_us or beyond <> 'give_up'
),
delay_own as materialized (
    select
        roll, spread_us,
        -- Whole seconds and the rest apart: the product of both might overflow.
        coalesce(base_us, ceiling_us / 1000000 * low_ppm + ceiling_us % 1000000 * low_ppm / 1000000) as low_us,
        min(cap_us, coalesce(
            3 * max(base_us, last_us),
            ceiling_us / 1000000 * high_ppm + ceiling_us % 1000000 * high_ppm / 1000000
        )) as high_us,
        iif(beyond = 'clip', min(asked_us, limit_us), asked_us) as floor_us
    from delay_ceiling
),
delay_window as materialized (
    select
        roll,
        max(min(low_us, high_us), coalesce(floor_us, 0)) as low_us,
        max(high_us, coalesce(floor_us + spread_us, 0)) as high_us
    from delay_own
),
-- span × roll has up to 78 bits, so it is made of two halves: upper × 2³² + lower. The roll, written twice, is a
-- 64-bit fraction; that many 2⁶⁴ths of the span is what the sum at the end works out.
delay_product as materialized (
    select
        low_us,
        roll * ((high_us - low_us + 1) >> 16) as left_part,
        roll * ((high_us - low_us + 1) & 65535) as right_part
    from delay_window
),
delay_halves as materialized (
    select
        low_us,
        (left_part + (right_part >> 16)) >> 16 as upper,
        (((left_part + (right_part >> 16)) & 65535) << 16) | (right_part & 65535) as lower
    from delay_product
)
select low_us + upper + ((upper + lower) >> 32) from delay_halves
)
