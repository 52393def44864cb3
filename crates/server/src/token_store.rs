//! The daemon's own data besides work and locks: API tokens, and the audit log.
//!
//! They are in the store of the work, in tables of their own. Work in memory has no address that another client could
//! open, so the daemon then keeps its own data in a separate memory, which ends with the process.

mod audit;
mod postgres;
mod rows;
mod sqlite;
mod token;

pub use audit::{AuditEntry, AuditEvent, AuditPage};
pub use token::{InvalidToken, IssuedToken, NewToken, TokenRecord, TokenScope, UnknownScope};
pub(crate) use token::{PresentedToken, hex};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdoff_work::Moment;

use crate::Error;

type Result<T> = std::result::Result<T, Error>;

/// The maximum number of listed tokens, newest first.
pub(crate) const MAX_TOKENS: u32 = 1000;

/// The maximum number of sessions of one token. A new session ends the oldest.
const MAX_SESSIONS: u32 = 100;

/// The tokens and the audit log of one store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TokenStore {
    engine: Arc<dyn Engine>,
}

/// A storage engine. Every change is one transaction, and is durable when the call returns. The clock is the store's.
#[async_trait]
trait Engine: std::fmt::Debug + Send + Sync {
    /// Stores a token. Returns the times of its creation and of its expiry.
    async fn issue(&self, token: &NewToken, id: &str, hash: &[u8]) -> Result<(Moment, Option<Moment>)>;
    /// Returns the token with this id in its current state.
    async fn find(&self, id: &str) -> Result<Option<StoredToken>>;
    async fn tokens(&self, limit: u32) -> Result<Vec<TokenRecord>>;
    /// Revokes a token. Returns false if there is no valid one with this id.
    async fn revoke(&self, id: &str) -> Result<bool>;
    /// Records that a token is in use. A power failure may undo it.
    async fn touch(&self, id: &str) -> Result<()>;
    /// Returns whether there is a valid token of scope `admin` for all namespaces.
    async fn has_admin(&self) -> Result<bool>;
    async fn record(&self, event: &AuditEvent) -> Result<()>;
    async fn audit(&self, page: &AuditPage) -> Result<Vec<AuditEntry>>;
    /// Deletes at most `limit` entries older than `older`. Returns their number.
    async fn prune(&self, older: Duration, limit: u32) -> Result<u64>;
}

/// A token as the store has it.
#[derive(Debug)]
pub(crate) struct StoredToken {
    pub(crate) record: TokenRecord,
    pub(crate) hash: Vec<u8>,
    /// The time of the lookup, by the store's clock.
    pub(crate) now: Moment,
}

impl TokenStore {
    /// Opens the store at this address and migrates its tables.
    pub async fn open(url: &str) -> Result<Self> {
        let engine: Arc<dyn Engine> = if url.starts_with("postgres") {
            Arc::new(postgres::Postgres::open(url).await?)
        } else if url.starts_with("sqlite:") {
            Arc::new(sqlite::Sqlite::open(url).await?)
        } else {
            return Err(rows::unknown_scheme(url));
        };
        Ok(Self { engine })
    }

    /// Creates a token. It is returned once: the store keeps only its hash.
    pub async fn issue(&self, token: &NewToken) -> Result<IssuedToken> {
        token.validate()?;
        let generated = token::GeneratedToken::generate()?;
        let (created_at, expires_at) = self.engine.issue(token, &generated.id, &generated.hash).await?;
        Ok(generated.into_issued(token, created_at, expires_at))
    }

    /// Returns the tokens, newest first, including revoked and expired ones.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>> {
        self.engine.tokens(MAX_TOKENS).await
    }

    /// Revokes a token, on every daemon within two seconds. Returns false if there is no valid token with this id.
    pub async fn revoke(&self, id: &str) -> Result<bool> {
        self.engine.revoke(id).await
    }

    /// Returns whether there is a valid token of scope `admin` for all namespaces.
    pub async fn has_admin(&self) -> Result<bool> {
        self.engine.has_admin().await
    }

    /// Appends an event to the audit log.
    pub async fn record(&self, event: &AuditEvent) -> Result<()> {
        self.engine.record(event).await
    }

    /// Returns a page of the audit log, newest first.
    pub async fn audit(&self, page: &AuditPage) -> Result<Vec<AuditEntry>> {
        self.engine.audit(page).await
    }

    /// Deletes at most `limit` entries of the audit log that are older than `older`. Returns their number.
    pub async fn prune(&self, older: Duration, limit: u32) -> Result<u64> {
        self.engine.prune(older, limit).await
    }

    pub(crate) async fn find(&self, id: &str) -> Result<Option<StoredToken>> {
        self.engine.find(id).await
    }

    /// Returns whether the token with this id is still valid.
    pub(crate) async fn is_valid(&self, id: &str) -> Result<bool> {
        Ok(self.find(id).await?.is_some_and(|stored| stored.record.is_valid(stored.now)))
    }

    pub(crate) async fn touch(&self, id: &str) -> Result<()> {
        self.engine.touch(id).await
    }
}
