//! What the daemon itself keeps, beside work and locks: API tokens, and who did what.
//!
//! It stands in the store of the work, in tables of its own. Work in memory has no address that anybody else could
//! open, so there the daemon's own things are in a memory of their own, and gone with it.

mod audit;
mod postgres;
mod rows;
mod scope;
mod sqlite;
mod token;

pub use audit::{AuditEntry, AuditPage, Deed};
pub use scope::{Scope, UnknownScope};
pub use token::{InvalidToken, Issued, NewToken, TokenRecord};
pub(crate) use token::{Presented, hex};

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdoff_work::Moment;

use crate::Error;

type Result<T> = std::result::Result<T, Error>;

/// The most tokens that are listed, newest first.
pub(crate) const MOST_TOKENS: u32 = 1000;

/// The most sessions that one token has at a time; a new one ends the oldest.
const MOST_SESSIONS: u32 = 100;

/// The tokens and the audit log of one store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Keep {
    engine: Arc<dyn Engine>,
}

/// What a store must do. Every change is one transaction, and durable when it is answered; the clock is the store's.
#[async_trait]
trait Engine: std::fmt::Debug + Send + Sync {
    /// Stores a token; answers with when that was, and when it ends.
    async fn issue(&self, token: &NewToken, id: &str, hash: &[u8]) -> Result<(Moment, Option<Moment>)>;
    /// The token with this id, as it is now.
    async fn find(&self, id: &str) -> Result<Option<Stored>>;
    async fn tokens(&self, limit: u32) -> Result<Vec<TokenRecord>>;
    /// Ends a token's life; false if there is none that lives.
    async fn revoke(&self, id: &str) -> Result<bool>;
    /// Notes that a token is in use. A power cut may undo it.
    async fn used(&self, id: &str) -> Result<()>;
    /// Whether somebody can do everything everywhere.
    async fn has_admin(&self) -> Result<bool>;
    async fn note(&self, deed: &Deed) -> Result<()>;
    async fn audit(&self, page: &AuditPage) -> Result<Vec<AuditEntry>>;
    /// Forgets at most `limit` entries older than this; says how many.
    async fn prune(&self, older: Duration, limit: u32) -> Result<u64>;
}

/// A token as the store has it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) record: TokenRecord,
    pub(crate) hash: Vec<u8>,
    /// When it was looked up, by the store's clock.
    pub(crate) now: Moment,
}

impl Keep {
    /// Opens the store at this address, and brings its tables up to date.
    pub async fn open(url: &str) -> Result<Self> {
        let engine: Arc<dyn Engine> = if url.starts_with("postgres") {
            Arc::new(postgres::Postgres::open(url).await?)
        } else if url.starts_with("sqlite:") {
            Arc::new(sqlite::Sqlite::open(url).await?)
        } else {
            return Err(rows::unknown(url));
        };
        Ok(Self { engine })
    }

    /// Makes a token. It is shown once: what is kept cannot be turned back into it.
    pub async fn issue(&self, token: &NewToken) -> Result<Issued> {
        token.check()?;
        let fresh = token::Fresh::draw()?;
        let (created_at, expires_at) = self.engine.issue(token, &fresh.id, &fresh.hash).await?;
        Ok(fresh.issued(token, created_at, expires_at))
    }

    /// The tokens, newest first; those that were revoked or have expired among them.
    pub async fn tokens(&self) -> Result<Vec<TokenRecord>> {
        self.engine.tokens(MOST_TOKENS).await
    }

    /// Ends a token's life, on every daemon within two seconds. False if there is none with this id that lives.
    pub async fn revoke(&self, id: &str) -> Result<bool> {
        self.engine.revoke(id).await
    }

    /// Whether there is a token that may do everything in every namespace.
    pub async fn has_admin(&self) -> Result<bool> {
        self.engine.has_admin().await
    }

    /// Writes down what somebody did.
    pub async fn note(&self, deed: &Deed) -> Result<()> {
        self.engine.note(deed).await
    }

    /// What was done, newest first.
    pub async fn audit(&self, page: &AuditPage) -> Result<Vec<AuditEntry>> {
        self.engine.audit(page).await
    }

    /// Forgets at most `limit` entries older than this; says how many.
    pub async fn prune(&self, older: Duration, limit: u32) -> Result<u64> {
        self.engine.prune(older, limit).await
    }

    pub(crate) async fn find(&self, id: &str) -> Result<Option<Stored>> {
        self.engine.find(id).await
    }

    /// Whether the token with this id still opens anything.
    pub(crate) async fn is_good(&self, id: &str) -> Result<bool> {
        Ok(self.find(id).await?.is_some_and(|stored| stored.record.is_good(stored.now)))
    }

    pub(crate) async fn used(&self, id: &str) -> Result<()> {
        self.engine.used(id).await
    }
}
