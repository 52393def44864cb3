//! Tokens and the audit log in a SQLite file.

use std::time::Duration;

use async_trait::async_trait;
use holdoff_policy::as_micros_i64;
use holdoff_sql::sqlite::Database;
use holdoff_sql::{Component, Migration, SchemaChange};
use holdoff_work::Moment;
use sqlx::{AssertSqlSafe, FromRow};

use super::rows::{self, Columns, EntryRow, SecretRow, TokenRow, number, sql_error};
use super::{
    AuditEntry, AuditEvent, AuditPage, Engine, MAX_SESSIONS, NewToken, Result, StoredToken, TokenRecord,
};

const COMPONENT: Component = Component {
    table: "holdoff_server_migrations",
    migrations: &[
        Migration {
            version: 3,
            breaks_before: 3,
            change: SchemaChange::Statements(include_str!("sqlite.sql")),
        },
        Migration {
            version: 4,
            breaks_before: 3,
            change: SchemaChange::Statements(include_str!("sessions_sqlite.sql")),
        },
    ],
};

#[derive(Debug)]
pub(super) struct Sqlite {
    file: Database,
}

impl Sqlite {
    pub(super) async fn open(url: &str) -> Result<Self> {
        let file = Database::open(url).await.map_err(sql_error)?;
        file.migrate(&COMPONENT).await.map_err(sql_error)?;
        Ok(Self { file })
    }
}

#[async_trait]
impl Engine for Sqlite {
    async fn issue(&self, token: &NewToken, id: &str, hash: &[u8]) -> Result<(Moment, Option<Moment>)> {
        let mut write = self.file.write().await.map_err(sql_error)?;
        let expires_at = token.expires.map(|after| write.now.saturating_add(as_micros_i64(after)));
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
            .map_err(sql_error)?;
        // Each login deletes the expired sessions, and the oldest ones beyond the maximum.
        let over = "delete from holdoff_server_tokens where session_of is not null and (expires_at < ?1
            or session_of = ?2 and id in (select id from holdoff_server_tokens where session_of = ?2
                order by created_at desc, id limit -1 offset ?3))";
        sqlx::query(over)
            .bind(write.now)
            .bind(&token.session_of)
            .bind(MAX_SESSIONS)
            .execute(&mut *write.tx)
            .await
            .map_err(sql_error)?;
        write.tx.commit().await.map_err(sql_error)?;
        Ok((Moment::from_micros(write.now), expires_at.map(Moment::from_micros)))
    }

    async fn find(&self, id: &str) -> Result<Option<StoredToken>> {
        // A session is valid only while the token that it derives from is valid.
        let query = "select t.id, t.name, t.scope, t.namespace, t.created_at,
                coalesce(min(t.expires_at, p.expires_at), t.expires_at, p.expires_at) as expires_at,
                coalesce(t.revoked_at, p.revoked_at) as revoked_at, t.used_at, t.session_of, t.hash, ?2 as now
            from holdoff_server_tokens t left join holdoff_server_tokens p on p.id = t.session_of
            where t.id = ?1";
        let found = sqlx::query(query)
            .bind(id)
            .bind(self.file.now())
            .fetch_optional(self.file.readers())
            .await
            .map_err(sql_error)?;
        let Some(row) = found else { return Ok(None) };
        let (token, secret) = (TokenRow::from_row(&row), SecretRow::from_row(&row));
        rows::stored(token.map_err(sql_error)?, secret.map_err(sql_error)?).map(Some)
    }

    async fn tokens(&self, limit: u32) -> Result<Vec<TokenRecord>> {
        let query = format!(
            "select {} from holdoff_server_tokens where session_of is null order by created_at desc, id limit ?1",
            TokenRow::columns(),
        );
        let found: Vec<TokenRow> = sqlx::query_as(AssertSqlSafe(query))
            .bind(limit)
            .fetch_all(self.file.readers())
            .await
            .map_err(sql_error)?;
        found.into_iter().map(rows::token).collect()
    }

    async fn revoke(&self, id: &str) -> Result<bool> {
        let mut write = self.file.write().await.map_err(sql_error)?;
        let query = "update holdoff_server_tokens set revoked_at = ?2
            where (id = ?1 or session_of = ?1) and revoked_at is null";
        let revoked =
            sqlx::query(query).bind(id).bind(write.now).execute(&mut *write.tx).await.map_err(sql_error)?;
        write.tx.commit().await.map_err(sql_error)?;
        Ok(revoked.rows_affected() > 0)
    }

    async fn touch(&self, id: &str) -> Result<()> {
        let mut write = self.file.write_relaxed().await.map_err(sql_error)?;
        sqlx::query("update holdoff_server_tokens set used_at = ?2 where id = ?1")
            .bind(id)
            .bind(write.now)
            .execute(&mut *write.tx)
            .await
            .map_err(sql_error)?;
        Ok(write.tx.commit().await.map_err(sql_error)?)
    }

    async fn has_admin(&self) -> Result<bool> {
        let query =
            "select exists (select 1 from holdoff_server_tokens where scope = 'admin' and namespace is null and session_of is null
            and revoked_at is null and (expires_at is null or expires_at > ?1))";
        let found: bool = sqlx::query_scalar(query)
            .bind(self.file.now())
            .fetch_one(self.file.readers())
            .await
            .map_err(sql_error)?;
        Ok(found)
    }

    async fn record(&self, event: &AuditEvent) -> Result<()> {
        let mut write = self.file.write().await.map_err(sql_error)?;
        let query =
            "insert into holdoff_server_audit (at, actor, token, action, namespace, object, count, request)
            values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        sqlx::query(query)
            .bind(write.now)
            .bind(&event.actor)
            .bind(&event.token)
            .bind(&event.action)
            .bind(&event.namespace)
            .bind(&event.object)
            .bind(number(event.count))
            .bind(&event.request)
            .execute(&mut *write.tx)
            .await
            .map_err(sql_error)?;
        Ok(write.tx.commit().await.map_err(sql_error)?)
    }

    async fn audit(&self, page: &AuditPage) -> Result<Vec<AuditEntry>> {
        let query = format!(
            "select {} from holdoff_server_audit
            where (?1 is null or namespace = ?1) and (?2 is null or id < ?2) order by id desc limit ?3",
            EntryRow::columns(),
        );
        let found: Vec<EntryRow> = sqlx::query_as(AssertSqlSafe(query))
            .bind(&page.namespace)
            .bind(page.before)
            .bind(page.limit.min(AuditPage::MAX_LIMIT))
            .fetch_all(self.file.readers())
            .await
            .map_err(sql_error)?;
        Ok(found.into_iter().map(rows::entry).collect())
    }

    async fn prune(&self, older: Duration, limit: u32) -> Result<u64> {
        let mut write = self.file.write_relaxed().await.map_err(sql_error)?;
        let query = "delete from holdoff_server_audit where id in
            (select id from holdoff_server_audit where at < ?1 order by at limit ?2)";
        let gone = sqlx::query(query)
            .bind(write.now.saturating_sub(as_micros_i64(older)))
            .bind(limit)
            .execute(&mut *write.tx)
            .await
            .map_err(sql_error)?;
        write.tx.commit().await.map_err(sql_error)?;
        Ok(gone.rows_affected())
    }
}
