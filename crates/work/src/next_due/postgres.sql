-- The retry decision in Postgres. `docs/policy.md` defines the arithmetic, and `Compiled::decide` is the reference
-- implementation. All numbers are bigint: no product below exceeds 63 bits, and numeric would be several times slower.

-- Returns the wait after that many attempts with a plain transient failure, without deadline or contention, under a
-- compiled policy, or null if there is no further attempt. A null retry_after_us means that there was no Retry-After.
create or replace function holdoff.delay_us(
    compiled jsonb, attempt integer, last_delay_us bigint, roll bigint, retry_after_us bigint
) returns bigint
language plpgsql immutable parallel safe
as $$
declare
    longest_us constant bigint := 31536000000000; -- 365 days, the longest duration that a policy may contain
    attempts constant bigint := greatest(attempt, 1);
    shape constant jsonb := compiled -> 'shape';
    part jsonb;
    first_us bigint;
    step_us bigint;
    top_us bigint;
    ceiling_us bigint;
    low_us bigint;
    high_us bigint;
    floor_us bigint;
    span bigint; -- the number of values in the window
    carried bigint;
    upper bigint;
    lower bigint;
begin
    if (compiled -> 'version')::bigint is distinct from 1 then
        raise exception 'holdoff: not a compiled policy of version 1: %', compiled;
    end if;
    if attempts >= (compiled -> 'attempts')::bigint then
        return null;
    end if;

    -- The window of the policy.
    if shape ? 'decorrelated' then
        low_us := (shape -> 'decorrelated' -> 'base_us')::bigint;
        high_us := 3 * greatest(low_us, least(last_delay_us, longest_us));
    else
        part := shape -> 'table';
        if part is not null then
            ceiling_us := (part -> (least(attempts, jsonb_array_length(part)) - 1)::integer)::bigint;
        else
            part := shape -> 'line';
            first_us := (part -> 'first_us')::bigint;
            step_us := (part -> 'step_us')::bigint;
            top_us := (part -> 'top_us')::bigint;
            -- The comparison with the top of the line comes before the multiplication, which might overflow.
            ceiling_us := case
                when attempts - 1 > (top_us - first_us) / nullif(step_us, 0) then top_us
                else first_us + step_us * (attempts - 1)
            end;
        end if;
        -- Whole seconds and the remainder are multiplied separately, because a single product might overflow.
        part := compiled -> 'low_ppm';
        low_us := ceiling_us / 1000000 * part::bigint + ceiling_us % 1000000 * part::bigint / 1000000;
        part := compiled -> 'high_ppm';
        high_us := ceiling_us / 1000000 * part::bigint + ceiling_us % 1000000 * part::bigint / 1000000;
    end if;
    high_us := least(high_us, (compiled -> 'cap_us')::bigint);
    low_us := least(low_us, high_us);

    -- Retry-After is a floor under the window.
    if retry_after_us is not null then
        part := compiled -> 'retry_after';
        floor_us := least(greatest(retry_after_us, 0), longest_us);
        if floor_us > (part -> 'limit_us')::bigint then
            case part ->> 'beyond'
                when 'give_up' then return null;
                when 'clip' then floor_us := (part -> 'limit_us')::bigint;
                when 'wait' then null;
            end case;
        end if;
        low_us := greatest(low_us, floor_us);
        high_us := greatest(high_us, floor_us + (part -> 'spread_us')::bigint);
    end if;

    -- span × roll has up to 78 bits, so it is computed in two halves: upper × 2³² + lower. The roll, written twice, is
    -- a 64-bit fraction. The sum at the end is the span multiplied by that fraction.
    span := high_us - low_us + 1;
    carried := roll * (span >> 16) + (roll * (span & 65535) >> 16);
    upper := carried >> 16;
    lower := ((carried & 65535) << 16) | (roll * (span & 65535) & 65535);
    return low_us + upper + ((upper + lower) >> 32);
end
$$;

-- Returns the same under a stored policy.
create or replace function holdoff.next_due(
    policy integer, attempt integer, last_delay_us bigint, roll bigint, retry_after_us bigint
) returns bigint
language plpgsql stable parallel safe
as $$
declare
    form jsonb;
begin
    select stored.compiled into form from holdoff.policies stored where stored.id = policy;
    if not found then
        -- Null would mean that there is no further attempt.
        raise exception 'holdoff: there is no policy %', policy;
    end if;
    return holdoff.delay_us(form, attempt, last_delay_us, roll, retry_after_us);
end
$$;
