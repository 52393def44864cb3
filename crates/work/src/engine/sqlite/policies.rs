//! Compiled policies and versions of the policies.

use async_trait::async_trait;
use tokio::sync::watch;

use super::Sqlite;
use crate::engine::columns::{VersionColumns, list};
use crate::engine::sql::sql;
use crate::store::{Activate, NewVersion, PolicyNumber, PolicyRow, PolicyStore, Result};
use crate::version::VersionRecord;

#[async_trait]
impl PolicyStore for Sqlite {
    async fn store_policies(&self, policies: &[PolicyRow]) -> Result<Vec<PolicyNumber>> {
        let mut write = self.file.write().await?;
        let mut numbers = Vec::with_capacity(policies.len());
        for policy in policies {
            let insert =
                "insert into holdoff_policies (hash, name, compiled, deployed_at) values (?1, ?2, ?3, ?4)
                on conflict (hash, name) do update set hash = excluded.hash returning id";
            let number = sqlx::query_scalar(insert)
                .bind(&policy.hash)
                .bind(&policy.name)
                .bind(&policy.compiled)
                .bind(write.now)
                .fetch_one(&mut *write.tx)
                .await?;
            numbers.push(number);
        }
        write.tx.commit().await?;
        Ok(numbers)
    }

    async fn policy(&self, number: PolicyNumber) -> Result<Option<String>> {
        let query = "select compiled from holdoff_policies where id = ?1";
        Ok(sqlx::query_scalar(query).bind(number).fetch_optional(self.file.readers()).await?)
    }

    async fn activate_version(&self, version: &NewVersion<'_>, when: Activate) -> Result<bool> {
        let mut write = self.file.write().await?;
        let NewVersion { hash, file, by } = version;
        let insert = "insert into holdoff_policy_sets (hash, file, deployed_at, active, deployed_by)
            values (?1, ?2, ?3, 0, ?4) on conflict (hash) do nothing";
        let inserted = sqlx::query(insert).bind(hash).bind(file).bind(write.now).bind(by);
        let is_new = inserted.execute(&mut *write.tx).await?.rows_affected() > 0;
        let query = "select count(*) filter (where hash <> ?1) > 0, count(*) filter (where hash = ?1) > 0
            from holdoff_policy_sets where active";
        let (has_other, is_active): (bool, bool) =
            sqlx::query_as(query).bind(hash).fetch_one(&mut *write.tx).await?;
        let becomes_active = when.applies(is_new, is_active, has_other);
        if becomes_active {
            let query = "update holdoff_policy_sets set active = hash = ?1,
                    activated_at = iif(hash = ?1, ?2, activated_at), activated_by = iif(hash = ?1, ?3, activated_by)
                where active or hash = ?1";
            sqlx::query(query).bind(hash).bind(write.now).bind(by).execute(&mut *write.tx).await?;
        }
        write.tx.commit().await?;
        self.wake.send();
        Ok(becomes_active && has_other)
    }

    async fn active_version(&self) -> Result<Option<Vec<u8>>> {
        let query = "select hash from holdoff_policy_sets where active order by activated_at desc limit 1";
        Ok(sqlx::query_scalar(query).fetch_optional(self.file.readers()).await?)
    }

    async fn version_file(&self, hash: &[u8]) -> Result<Option<String>> {
        let query = "select file from holdoff_policy_sets where hash = ?1";
        Ok(sqlx::query_scalar(query).bind(hash).fetch_optional(self.file.readers()).await?)
    }

    async fn versions(&self, limit: i64) -> Result<Vec<VersionRecord>> {
        let query = sql!(
            "select ",
            list!(VersionColumns, Sqlite),
            " from holdoff_policy_sets v order by v.deployed_at desc, v.hash limit ?1"
        );
        let rows = sqlx::query(query).bind(limit).fetch_all(self.file.readers()).await?;
        Ok(VersionColumns::read(&rows)?.into_iter().filter_map(VersionColumns::into_record).collect())
    }

    /// A change of the file does not say which rows were written.
    fn policy_changes(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }
}
