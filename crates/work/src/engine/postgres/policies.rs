//! Compiled policies and versions of the policies.

use async_trait::async_trait;
use tokio::sync::watch;

use super::{POLICIES_CHANGED, Postgres};
use crate::engine::columns::{VersionColumns, list};
use crate::engine::sql::sql;
use crate::store::{Activate, NewVersion, PolicyNumber, PolicyRow, PolicyStore, Result};
use crate::version::VersionRecord;

#[async_trait]
impl PolicyStore for Postgres {
    async fn store_policies(&self, policies: &[PolicyRow]) -> Result<Vec<PolicyNumber>> {
        let mut numbers = Vec::with_capacity(policies.len());
        for policy in policies {
            let insert = "insert into holdoff.policies (hash, name, compiled) values ($1, $2, $3::jsonb)
                on conflict (hash, name) do nothing";
            sqlx::query(insert)
                .bind(&policy.hash)
                .bind(&policy.name)
                .bind(&policy.compiled)
                .execute(&self.pool)
                .await?;
            let number = sqlx::query_scalar("select id from holdoff.policies where hash = $1 and name = $2")
                .bind(&policy.hash)
                .bind(&policy.name)
                .fetch_one(&self.pool)
                .await?;
            numbers.push(number);
        }
        Ok(numbers)
    }

    async fn policy(&self, number: PolicyNumber) -> Result<Option<String>> {
        let query = "select compiled::text from holdoff.policies where id = $1";
        Ok(sqlx::query_scalar(query).bind(number).fetch_optional(&self.pool).await?)
    }

    async fn activate_version(&self, version: &NewVersion<'_>, when: Activate) -> Result<bool> {
        let NewVersion { hash, file, by } = version;
        let mut tx = self.pool.begin().await?;
        // Two concurrent transactions could both find no active version, and both activate theirs.
        sqlx::query("lock table holdoff.policy_sets in share row exclusive mode").execute(&mut *tx).await?;
        let insert =
            "insert into holdoff.policy_sets (hash, file, active, deployed_by) values ($1, $2, false, $3)
            on conflict (hash) do nothing";
        let is_new =
            sqlx::query(insert).bind(hash).bind(file).bind(by).execute(&mut *tx).await?.rows_affected() > 0;
        let query = "select count(*) filter (where hash <> $1) > 0, count(*) filter (where hash = $1) > 0
            from holdoff.policy_sets where active";
        let (has_other, is_active): (bool, bool) =
            sqlx::query_as(query).bind(hash).fetch_one(&mut *tx).await?;
        let becomes_active = when.applies(is_new, is_active, has_other);
        if becomes_active {
            let query = "update holdoff.policy_sets set active = hash = $1,
                    activated_at = case when hash = $1 then clock_timestamp() else activated_at end,
                    activated_by = case when hash = $1 then $2 else activated_by end
                where active or hash = $1";
            sqlx::query(query).bind(hash).bind(by).execute(&mut *tx).await?;
            sqlx::query("select pg_notify('holdoff', $1)").bind(POLICIES_CHANGED).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(becomes_active && has_other)
    }

    async fn active_version(&self) -> Result<Option<Vec<u8>>> {
        let query =
            "select hash from holdoff.policy_sets where active order by activated_at desc nulls last limit 1";
        Ok(sqlx::query_scalar(query).fetch_optional(&self.pool).await?)
    }

    async fn version_file(&self, hash: &[u8]) -> Result<Option<String>> {
        let query = "select file from holdoff.policy_sets where hash = $1";
        Ok(sqlx::query_scalar(query).bind(hash).fetch_optional(&self.pool).await?)
    }

    async fn versions(&self, limit: i64) -> Result<Vec<VersionRecord>> {
        let query = sql!(
            "select ",
            list!(VersionColumns, Postgres),
            " from holdoff.policy_sets v order by v.deployed_at desc, v.hash limit $1"
        );
        let rows = sqlx::query(query).bind(limit).fetch_all(&self.pool).await?;
        Ok(VersionColumns::read(&rows)?.into_iter().filter_map(VersionColumns::into_record).collect())
    }

    fn policy_changes(&self) -> watch::Receiver<()> {
        self.wake.policies()
    }
}
