(
-- The retry decision in SQLite. `docs/policy.md` defines the arithmetic, and `Compiled::decide` is the reference
-- implementation. No intermediate value exceeds 63 bits, because SQLite would convert it to a float. `materialized`
-- prevents SQLite from evaluating a subquery again at each mention.
with delay_input as materialized (
    select
        {compiled} as policy,
        max({attempt}, 1) as attempts,
        min(coalesce({last_delay}, 0), 31536000000000) as last_us,
        {roll} as roll,
        -- Null stays null and means that there was no Retry-After.
        min(max({retry_after}, 0), 31536000000000) as asked_us
),
delay_rule as materialized (
    select
        attempts, last_us, roll, asked_us,
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
        policy ->> ('$.shape.table[' || (min(attempts, json_array_length(policy, '$.shape.table')) - 1) || ']')
            as entry_us
    from delay_input
    -- No row means that there is no further attempt. A value that is not a compiled policy of version 1 is an error
    -- instead.
    where case policy ->> '$.version' when 1 then attempts < policy ->> '$.attempts' else json('not version 1') end
),
delay_ceiling as materialized (
    select
        last_us, roll, asked_us, cap_us, low_ppm, high_ppm, limit_us, spread_us, beyond, base_us,
        -- The comparison with the top of the line comes before the multiplication, which might overflow.
        case
            when entry_us is not null then entry_us
            when attempts - 1 > (top_us - first_us) / nullif(step_us, 0) then top_us
            else first_us + step_us * (attempts - 1)
        end as ceiling_us
    from delay_rule
    where asked_us is null or asked_us <= limit_us or beyond <> 'give_up'
),
delay_own as materialized (
    select
        roll, spread_us,
        -- Whole seconds and the remainder are multiplied separately, because a single product might overflow.
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
-- span × roll has up to 78 bits, so it is computed in two halves: upper × 2³² + lower. The roll, written twice, is a
-- 64-bit fraction. The sum at the end is the span multiplied by that fraction.
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
