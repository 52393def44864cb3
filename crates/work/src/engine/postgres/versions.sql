-- The author of a policy version, and the time and the author of its last activation.
alter table holdoff.policy_sets
    add column published_by text,
    add column activated_at timestamptz,
    add column activated_by text;
