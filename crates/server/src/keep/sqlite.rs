//! Tokens and the audit log in a SQLite file.

use std::time::Duration;

use async_trait::async_trait;
use holdoff_sql::sqlite::File;
use holdoff_sql::{Component, Migration};
use holdoff_work::Moment;
use sqlx::AssertSqlSafe;

use super::rows::{self, ENTRY, EntryRow, StoredRow, TOKEN, TokenRow, micros, number, refused};
use super::{AuditEntry, AuditPage, Deed, Engine, MOST_SESSIONS, NewToken, Result, Stored, TokenRecord};

const COMPONENT: Component = Component {
    table: "holdoff_server_migrations",
    migrations: &[
        Migration { version: 1, breaks_before: 1, sql: include_str!("sqlite.sql") },
        Migration { version: 2, breaks_before: 1, sql: include_str!("sessions_sqlite.sql") },
    ],
};

#[derive(Debug)]
pub(super) struct Sqlite {
    file: File,
}

impl Sqlite {
    pub(super) async fn open(url: &str) -> Result<Self> {
        let file = File::open(url).await.map_err(refused)?;
        file.migrate(&COMPONENT).await.map_err(refused)?;
        Ok(Self { file })
    }
}

#[async_trait]
impl Engine for Sqlite {
    async fn issue(&self, token: &NewToken, id: &str, hash: &[u8]) -> Result<(Moment, Option<Moment>)> {
        let mut write = self.file.write().await.map_err(refused)?;
        let expires_at = token.expires.map(|after| write.now.saturating_add(micros(after)));
        let query =
            "insert into holdoff_server_tokens (id, name, scope, namespace, hash, created_at, expires_at,
            session_of) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        sqlx::query(query)
            .bind(id)
            .bind(&token.name)
            .bind(token.scope.name())
            .bind(&token.namespace)
            .bind(hash)
            .bind(write.now)
            .bind(expires_at)
            .bind(&token.session_of)
            .execute(&mut *write.tx)
            .await
            .map_err(refused)?;
        // Each login deletes the expired sessions, and the oldest ones beyond the maximum.
        let over = "delete from holdoff_server_tokens where session_of is not null and (expires_at < ?1
            or session_of = ?2 and id in (select id from holdoff_server_tokens where session_of = ?2
                order by created_at desc, id limit -1 offset ?3))";
        sqlx::query(over)
            .bind(write.now)
            .bind(&token.session_of)
            .bind(MOST_SESSIONS)
            .execute(&mut *write.tx)
            .await
            .map_err(refused)?;
        write.tx.commit().await.map_err(refused)?;
        Ok((Moment::from_micros(write.now), expires_at.map(Moment::from_micros)))
    }

    async fn find(&self, id: &str) -> Result<Option<Stored>> {
        // A session is valid only while the token that it derives from is valid.
        let query = "select t.id, t.name, t.scope, t.namespace, t.created_at,
                coalesce(min(t.expires_at, p.expires_at), t.expires_at, p.expires_at),
                coalesce(t.revoked_at, p.revoked_at), t.used_at, t.session_of, t.hash, ?2
            from holdoff_server_tokens t left join holdoff_server_tokens p on p.id = t.session_of
            where t.id = ?1";
        let found: Option<StoredRow> = sqlx::query_as(query)
            .bind(id)
            .bind(self.file.now())
            .fetch_optional(self.file.readers())
            .await
            .map_err(refused)?;
        found.map(rows::stored).transpose()
    }

    async fn tokens(&self, limit: u32) -> Result<Vec<TokenRecord>> {
        let query = format!(
            "select {TOKEN} from holdoff_server_tokens where session_of is null order by created_at desc, id limit ?1"
        );
        let found: Vec<TokenRow> = sqlx::query_as(AssertSqlSafe(query))
            .bind(limit)
            .fetch_all(self.file.readers())
            .await
            .map_err(refused)?;
        found.into_iter().map(rows::token).collect()
    }

    async fn revoke(&self, id: &str) -> Result<bool> {
        let mut write = self.file.write().await.map_err(refused)?;
        let query = "update holdoff_server_tokens set revoked_at = ?2
            where (id = ?1 or session_of = ?1) and revoked_at is null";
        let revoked =
            sqlx::query(query).bind(id).bind(write.now).execute(&mut *write.tx).await.map_err(refused)?;
        write.tx.commit().await.map_err(refused)?;
        Ok(revoked.rows_affected() > 0)
    }

    async fn used(&self, id: &str) -> Result<()> {
        let mut write = self.file.write_relaxed().await.map_err(refused)?;
        sqlx::query("update holdoff_server_tokens set used_at = ?2 where id = ?1")
            .bind(id)
            .bind(write.now)
            .execute(&mut *write.tx)
            .await
            .map_err(refused)?;
        Ok(write.tx.commit().await.map_err(refused)?)
    }

    async fn has_admin(&self) -> Result<bool> {
        let query =
            "select exists (select 1 from holdoff_server_tokens where scope = 'admin' and namespace is null and session_of is null
            and revoked_at is null and (expires_at is null or expires_at > ?1))";
        let found: bool = sqlx::query_scalar(query)
            .bind(self.file.now())
            .fetch_one(self.file.readers())
            .await
            .map_err(refused)?;
        Ok(found)
    }

    async fn note(&self, deed: &Deed) -> Result<()> {
        let mut write = self.file.write().await.map_err(refused)?;
        let query =
            "insert into holdoff_server_audit (at, who, token, action, namespace, object, count, request)
            values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        sqlx::query(query)
            .bind(write.now)
            .bind(&deed.who)
            .bind(&deed.token)
            .bind(&deed.action)
            .bind(&deed.namespace)
            .bind(&deed.object)
            .bind(number(deed.count))
            .bind(&deed.request)
            .execute(&mut *write.tx)
            .await
            .map_err(refused)?;
        Ok(write.tx.commit().await.map_err(refused)?)
    }

    async fn audit(&self, page: &AuditPage) -> Result<Vec<AuditEntry>> {
        let query = format!(
            "select {ENTRY} from holdoff_server_audit
            where (?1 is null or namespace = ?1) and (?2 is null or id < ?2) order by id desc limit ?3"
        );
        let found: Vec<EntryRow> = sqlx::query_as(AssertSqlSafe(query))
            .bind(&page.namespace)
            .bind(page.before)
            .bind(page.limit.min(AuditPage::MOST))
            .fetch_all(self.file.readers())
            .await
            .map_err(refused)?;
        Ok(found.into_iter().map(rows::entry).collect())
    }

    async fn prune(&self, older: Duration, limit: u32) -> Result<u64> {
        let mut write = self.file.write_relaxed().await.map_err(refused)?;
        let query = "delete from holdoff_server_audit where id in
            (select id from holdoff_server_audit where at < ?1 order by at limit ?2)";
        let gone = sqlx::query(query)
            .bind(write.now.saturating_sub(micros(older)))
            .bind(limit)
            .execute(&mut *write.tx)
            .await
            .map_err(refused)?;
        write.tx.commit().await.map_err(refused)?;
        Ok(gone.rows_affected())
    }
}
