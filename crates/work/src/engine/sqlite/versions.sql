-- The author of a policy version, and the time and the author of its last activation.
alter table holdoff_policy_sets add column published_by text;
alter table holdoff_policy_sets add column activated_at integer;
alter table holdoff_policy_sets add column activated_by text;
