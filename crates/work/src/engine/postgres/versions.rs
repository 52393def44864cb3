//! Versions of the policies.

use sqlx::PgPool;

use crate::store::{Activate, NewVersion, Result};
use crate::version::{VersionRecord, VersionRow};

/// The notification payload that says that another version has become active.
pub(super) const TOLD: &str = "policies";

pub(super) async fn activate(pool: &PgPool, version: &NewVersion<'_>, when: Activate) -> Result<bool> {
    let NewVersion { hash, file, by } = version;
    let mut tx = pool.begin().await?;
    // Two concurrent transactions could both find no active version, and both activate theirs.
    sqlx::query("lock table holdoff.policy_sets in share row exclusive mode").execute(&mut *tx).await?;
    let insert =
        "insert into holdoff.policy_sets (hash, file, active, published_by) values ($1, $2, false, $3)
        on conflict (hash) do nothing";
    let is_new =
        sqlx::query(insert).bind(hash).bind(file).bind(by).execute(&mut *tx).await?.rows_affected() > 0;
    let query = "select count(*) filter (where hash <> $1) > 0, count(*) filter (where hash = $1) > 0
        from holdoff.policy_sets where active";
    let (has_other, is_active): (bool, bool) = sqlx::query_as(query).bind(hash).fetch_one(&mut *tx).await?;
    let becomes_active = match when {
        Activate::Always => has_other || !is_active,
        Activate::IfUnseen => is_new || !(has_other || is_active),
        Activate::IfNone => !(has_other || is_active),
    };
    if becomes_active {
        let query = "update holdoff.policy_sets set active = hash = $1,
                activated_at = case when hash = $1 then clock_timestamp() else activated_at end,
                activated_by = case when hash = $1 then $2 else activated_by end
            where active or hash = $1";
        sqlx::query(query).bind(hash).bind(by).execute(&mut *tx).await?;
        sqlx::query("select pg_notify('holdoff', $1)").bind(TOLD).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(becomes_active && has_other)
}

pub(super) async fn active(pool: &PgPool) -> Result<Option<Vec<u8>>> {
    let query =
        "select hash from holdoff.policy_sets where active order by activated_at desc nulls last limit 1";
    Ok(sqlx::query_scalar(query).fetch_optional(pool).await?)
}

pub(super) async fn file(pool: &PgPool, hash: &[u8]) -> Result<Option<String>> {
    let query = "select file from holdoff.policy_sets where hash = $1";
    Ok(sqlx::query_scalar(query).bind(hash).fetch_optional(pool).await?)
}

pub(super) async fn list(pool: &PgPool, limit: i64) -> Result<Vec<VersionRecord>> {
    let query = "select hash, active, holdoff.micros(published_at), published_by,
            holdoff.micros(activated_at), activated_by
        from holdoff.policy_sets order by published_at desc, hash limit $1";
    let rows: Vec<VersionRow> = sqlx::query_as(query).bind(limit).fetch_all(pool).await?;
    Ok(rows.into_iter().filter_map(VersionRecord::of_row).collect())
}
