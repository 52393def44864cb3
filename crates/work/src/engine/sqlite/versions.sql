-- Who published a version of the policies, and who put it in force, when last.
alter table holdoff_policy_sets add column published_by text;
alter table holdoff_policy_sets add column activated_at integer;
alter table holdoff_policy_sets add column activated_by text;
