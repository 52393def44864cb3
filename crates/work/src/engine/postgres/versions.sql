-- Who published a version of the policies, and who put it in force, when last.
alter table holdoff.policy_sets
    add column published_by text,
    add column activated_at timestamptz,
    add column activated_by text;
