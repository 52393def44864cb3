//! Tokens and the audit log in Postgres.

use std::time::Duration;

use async_trait::async_trait;
use holdoff_policy::as_micros_i64;
use holdoff_sql::postgres::{Pool, PoolOptions};
use holdoff_sql::{Component, Migration, SchemaChange};
use holdoff_work::Moment;
use sqlx::{AssertSqlSafe, FromRow};

use super::rows::{self, Columns, EntryRow, SecretRow, TokenRow, number, sql_error};
use super::{
    AuditEntry, AuditEvent, AuditPage, Engine, MAX_SESSIONS, NewToken, Result, StoredToken, TokenRecord,
};

const COMPONENT: Component = Component {
    table: "holdoff.server_migrations",
    migrations: &[
        Migration {
            version: 3,
            breaks_before: 3,
            change: SchemaChange::Statements(include_str!("postgres.sql")),
        },
        Migration {
            version: 4,
            breaks_before: 3,
            change: SchemaChange::Statements(include_str!("sessions_postgres.sql")),
        },
    ],
};

/// The settings of every connection. The tables are small and callers wait for them, so the timeouts are short.
const SETTINGS: &[&str] = &[
    "time zone 'UTC'",
    "lock_timeout = '5s'",
    "statement_timeout = '20s'",
    "idle_in_transaction_session_timeout = '60s'",
    "jit = off",
];

/// The pool is small: each daemon looks up a token that it serves once a second.
const CONNECTIONS: PoolOptions = PoolOptions { settings: SETTINGS, min: 0, max: 4 };

#[derive(Debug)]
pub(super) struct Postgres {
    pool: Pool,
}

impl Postgres {
    pub(super) async fn open(url: &str) -> Result<Self> {
        let pool = CONNECTIONS.open(url).await.map_err(sql_error)?;
        pool.migrate(&COMPONENT).await.map_err(sql_error)?;
        Ok(Self { pool })
    }
}

#[async_trait]
impl Engine for Postgres {
    async fn issue(&self, token: &NewToken, id: &str, hash: &[u8]) -> Result<(Moment, Option<Moment>)> {
        let query =
            "with over as (delete from holdoff.server_tokens
                where session_of is not null and (expires_at < holdoff.server_now()
                    or session_of = $7 and id in (select id from holdoff.server_tokens where session_of = $7
                        order by created_at desc, id offset $8)))
            insert into holdoff.server_tokens (id, name, scope, namespace, hash, created_at, expires_at, session_of)
            select $1, $2, $3, $4, $5, now, now + $6, $7 from holdoff.server_now() as now
            returning created_at, expires_at";
        let (created_at, expires_at): (i64, Option<i64>) = sqlx::query_as(query)
            .bind(id)
            .bind(&token.name)
            .bind(token.scope.name())
            .bind(&token.namespace)
            .bind(hash)
            .bind(token.expires.map(as_micros_i64))
            .bind(&token.session_of)
            .bind(i64::from(MAX_SESSIONS) - 1)
            .fetch_one(&self.pool)
            .await
            .map_err(sql_error)?;
        Ok((Moment::from_micros(created_at), expires_at.map(Moment::from_micros)))
    }

    async fn find(&self, id: &str) -> Result<Option<StoredToken>> {
        // A session is valid only while the token that it derives from is valid.
        let query = "select t.id, t.name, t.scope, t.namespace, t.created_at, 
                least(t.expires_at, p.expires_at) as expires_at,
                coalesce(t.revoked_at, p.revoked_at) as revoked_at, t.used_at, t.session_of, t.hash,
                holdoff.server_now() as now
            from holdoff.server_tokens t left join holdoff.server_tokens p on p.id = t.session_of
            where t.id = $1";
        let found = sqlx::query(query).bind(id).fetch_optional(&self.pool).await.map_err(sql_error)?;
        let Some(row) = found else { return Ok(None) };
        let (token, secret) = (TokenRow::from_row(&row), SecretRow::from_row(&row));
        rows::stored(token.map_err(sql_error)?, secret.map_err(sql_error)?).map(Some)
    }

    async fn tokens(&self, limit: u32) -> Result<Vec<TokenRecord>> {
        let query = format!(
            "select {} from holdoff.server_tokens where session_of is null order by created_at desc, id limit $1",
            TokenRow::columns(),
        );
        let found: Vec<TokenRow> = sqlx::query_as(AssertSqlSafe(query))
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(sql_error)?;
        found.into_iter().map(rows::token).collect()
    }

    async fn revoke(&self, id: &str) -> Result<bool> {
        let query = "update holdoff.server_tokens set revoked_at = holdoff.server_now()
            where (id = $1 or session_of = $1) and revoked_at is null";
        let revoked = sqlx::query(query).bind(id).execute(&self.pool).await.map_err(sql_error)?;
        Ok(revoked.rows_affected() > 0)
    }

    async fn touch(&self, id: &str) -> Result<()> {
        sqlx::query("update holdoff.server_tokens set used_at = holdoff.server_now() where id = $1")
            .bind(id)
            .execute(&self.pool)
            .await
            .map_err(sql_error)?;
        Ok(())
    }

    async fn has_admin(&self) -> Result<bool> {
        let query =
            "select exists (select 1 from holdoff.server_tokens where scope = 'admin' and namespace is null and session_of is null
            and revoked_at is null and (expires_at is null or expires_at > holdoff.server_now()))";
        let found: bool = sqlx::query_scalar(query).fetch_one(&self.pool).await.map_err(sql_error)?;
        Ok(found)
    }

    async fn record(&self, event: &AuditEvent) -> Result<()> {
        let query =
            "insert into holdoff.server_audit (at, actor, token, action, namespace, object, count, request)
            values (holdoff.server_now(), $1, $2, $3, $4, $5, $6, $7)";
        sqlx::query(query)
            .bind(&event.actor)
            .bind(&event.token)
            .bind(&event.action)
            .bind(&event.namespace)
            .bind(&event.object)
            .bind(number(event.count))
            .bind(&event.request)
            .execute(&self.pool)
            .await
            .map_err(sql_error)?;
        Ok(())
    }

    async fn audit(&self, page: &AuditPage) -> Result<Vec<AuditEntry>> {
        let query = format!(
            "select {} from holdoff.server_audit
            where ($1::text is null or namespace = $1) and ($2::bigint is null or id < $2) order by id desc limit $3",
            EntryRow::columns(),
        );
        let found: Vec<EntryRow> = sqlx::query_as(AssertSqlSafe(query))
            .bind(&page.namespace)
            .bind(page.before)
            .bind(i64::from(page.limit.min(AuditPage::MAX_LIMIT)))
            .fetch_all(&self.pool)
            .await
            .map_err(sql_error)?;
        Ok(found.into_iter().map(rows::entry).collect())
    }

    async fn prune(&self, older: Duration, limit: u32) -> Result<u64> {
        let query = "delete from holdoff.server_audit where id in
            (select id from holdoff.server_audit where at < holdoff.server_now() - $1 order by at limit $2)";
        let gone = sqlx::query(query)
            .bind(as_micros_i64(older))
            .bind(i64::from(limit))
            .execute(&self.pool)
            .await
            .map_err(sql_error)?;
        Ok(gone.rows_affected())
    }
}
