//! Versions of the policies.

use sqlx::SqlitePool;

use super::Write;
use crate::store::{Activate, NewVersion, Result};
use crate::version::{VersionRecord, VersionRow};

pub(super) async fn activate(mut write: Write, version: &NewVersion<'_>, when: Activate) -> Result<bool> {
    let NewVersion { hash, file, by } = version;
    let insert = "insert into holdoff_policy_sets (hash, file, published_at, active, published_by)
        values (?1, ?2, ?3, 0, ?4) on conflict (hash) do nothing";
    let inserted = sqlx::query(insert).bind(hash).bind(file).bind(write.now).bind(by);
    let is_new = inserted.execute(&mut *write.tx).await?.rows_affected() > 0;
    let query = "select count(*) filter (where hash <> ?1) > 0, count(*) filter (where hash = ?1) > 0
        from holdoff_policy_sets where active";
    let (has_other, is_active): (bool, bool) =
        sqlx::query_as(query).bind(hash).fetch_one(&mut *write.tx).await?;
    let becomes_active = match when {
        Activate::Always => has_other || !is_active,
        Activate::IfUnseen => is_new || !(has_other || is_active),
        Activate::IfNone => !(has_other || is_active),
    };
    if becomes_active {
        let query = "update holdoff_policy_sets set active = hash = ?1,
                activated_at = iif(hash = ?1, ?2, activated_at), activated_by = iif(hash = ?1, ?3, activated_by)
            where active or hash = ?1";
        sqlx::query(query).bind(hash).bind(write.now).bind(by).execute(&mut *write.tx).await?;
    }
    write.tx.commit().await?;
    Ok(becomes_active && has_other)
}

pub(super) async fn active(pool: &SqlitePool) -> Result<Option<Vec<u8>>> {
    let query = "select hash from holdoff_policy_sets where active order by activated_at desc limit 1";
    Ok(sqlx::query_scalar(query).fetch_optional(pool).await?)
}

pub(super) async fn file(pool: &SqlitePool, hash: &[u8]) -> Result<Option<String>> {
    let query = "select file from holdoff_policy_sets where hash = ?1";
    Ok(sqlx::query_scalar(query).bind(hash).fetch_optional(pool).await?)
}

pub(super) async fn list(pool: &SqlitePool, limit: i64) -> Result<Vec<VersionRecord>> {
    let query = "select hash, active, published_at, published_by, activated_at, activated_by
        from holdoff_policy_sets order by published_at desc, hash limit ?1";
    let rows: Vec<VersionRow> = sqlx::query_as(query).bind(limit).fetch_all(pool).await?;
    Ok(rows.into_iter().filter_map(VersionRecord::of_row).collect())
}
