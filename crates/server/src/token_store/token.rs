//! API tokens, `holdoff_<id>_<secret>`, and their scopes.

use std::fmt::{self, Write};
use std::str::FromStr;
use std::time::Duration;

use holdoff_lock::LockKey;
use holdoff_policy::is_unprintable;
use holdoff_work::Moment;
use serde::Serialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::Error;

/// The prefix of every token, by which secret scanners find it.
const PREFIX: &str = "holdoff_";

const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const MAX_NAME_CHARS: usize = 100;
/// The maximum lifetime: ten years.
const MAX_LIFETIME: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// A token to be created.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NewToken {
    /// The name of its owner, for display.
    pub name: String,
    /// Its scope.
    pub scope: TokenScope,
    /// The namespace that it is limited to; all namespaces if absent.
    pub namespace: Option<String>,
    /// Its lifetime; until it is revoked if absent.
    pub expires: Option<Duration>,
    /// If this is a session: the id of the token of the login.
    pub(crate) session_of: Option<String>,
}

/// Why a token is invalid. Nothing was stored.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidToken {
    /// The name is empty, too long, or contains a control or bidi character.
    #[error(
        "the name of an API token must have 1 to {MAX_NAME_CHARS} characters, without control or bidi characters"
    )]
    Name,
    /// The namespace is invalid.
    #[error("{0}")]
    Namespace(String),
    /// The lifetime is below one second or above ten years.
    #[error("the lifetime of an API token must be between one second and ten years")]
    Expires,
}

impl NewToken {
    /// Creates a token for all namespaces that is valid until it is revoked.
    pub fn new(name: impl Into<String>, scope: TokenScope) -> Self {
        Self { name: name.into(), scope, namespace: None, expires: None, session_of: None }
    }

    /// Limits the token to this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the token's lifetime.
    #[must_use]
    pub const fn expires(mut self, after: Duration) -> Self {
        self.expires = Some(after);
        self
    }

    /// Creates a session of this token: it has the same rights, and ends with the token.
    pub(crate) fn session(of: &TokenRecord, lasts: Duration) -> Self {
        let (name, scope, namespace) = (of.name.clone(), of.scope, of.namespace.clone());
        Self { name, scope, namespace, expires: Some(lasts), session_of: Some(of.id.clone()) }
    }

    pub(super) fn validate(&self) -> Result<(), InvalidToken> {
        let length = self.name.chars().count();
        if !(1..=MAX_NAME_CHARS).contains(&length) || self.name.chars().any(is_unprintable) {
            return Err(InvalidToken::Name);
        }
        if self.expires.is_some_and(|after| after < Duration::from_secs(1) || after > MAX_LIFETIME) {
            return Err(InvalidToken::Expires);
        }
        let checked = self.namespace.as_ref().map(|namespace| LockKey::new(namespace, "any"));
        checked.transpose().map(drop).map_err(|why| InvalidToken::Namespace(why.to_string()))
    }
}

/// The record of a token. It contains no secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct TokenRecord {
    /// Its id, by which it is revoked.
    pub id: String,
    /// The name of its owner.
    pub name: String,
    /// Its scope.
    pub scope: TokenScope,
    /// The namespace that it is limited to; all namespaces if absent.
    pub namespace: Option<String>,
    /// The time of its creation.
    pub created_at: Moment,
    /// The time of its expiry.
    pub expires_at: Option<Moment>,
    /// The time of its revocation.
    pub revoked_at: Option<Moment>,
    /// The time of its last use, to about a minute.
    pub used_at: Option<Moment>,
    /// If this is a session: the id of the token of the login.
    #[serde(skip)]
    pub(crate) session_of: Option<String>,
}

impl TokenRecord {
    /// Returns whether the token is valid at this time.
    pub fn is_valid(&self, now: Moment) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A token that was just created. The token itself cannot be shown again.
#[derive(Clone)]
#[non_exhaustive]
pub struct IssuedToken {
    /// Its record.
    pub record: TokenRecord,
    /// The token itself.
    pub token: String,
}

impl fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("record", &self.record).finish_non_exhaustive()
    }
}

/// A generated token that is not stored yet.
pub(super) struct GeneratedToken {
    pub(super) id: String,
    pub(super) hash: [u8; 32],
    secret: String,
}

impl GeneratedToken {
    /// Generates a token from the system's random number generator.
    pub(super) fn generate() -> Result<Self, Error> {
        let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
        let filled = getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut secret));
        filled.map_err(|source| Error::TokenStore { transient: false, source: Box::new(source) })?;
        let secret = hex(&secret);
        Ok(Self { id: hex(&id), hash: hash(&secret), secret })
    }

    pub(super) fn into_issued(
        self,
        token: &NewToken,
        created_at: Moment,
        expires_at: Option<Moment>,
    ) -> IssuedToken {
        let text = format!("{PREFIX}{}_{}", self.id, self.secret);
        let record = TokenRecord {
            id: self.id,
            name: token.name.clone(),
            scope: token.scope,
            namespace: token.namespace.clone(),
            created_at,
            expires_at,
            revoked_at: None,
            used_at: None,
            session_of: token.session_of.clone(),
        };
        IssuedToken { record, token: text }
    }
}

/// A token as a caller presents it. It implements neither `Debug` nor `Display`, on purpose.
pub(crate) struct PresentedToken<'t> {
    /// The id for the lookup. The time that the lookup takes reveals nothing about the secret.
    pub(crate) id: &'t str,
    hash: [u8; 32],
}

impl<'t> PresentedToken<'t> {
    /// Parses a token, whether or not the store has it.
    pub(crate) fn parse(text: &'t str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hex = |text: &str, bytes: usize| {
            text.len() == 2 * bytes && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        (is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES)).then(|| Self { id, hash: hash(secret) })
    }

    /// Returns whether the secret has this hash. The comparison takes constant time.
    pub(crate) fn matches(&self, hash: &[u8]) -> bool {
        self.hash.as_slice().ct_eq(hash).into()
    }
}

/// One round of SHA-256 without a salt. A slow hash protects secrets that can be guessed; 256 random bits cannot be.
fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The scope of an API token. Each scope includes those before it: a caller that may submit work may also read its
/// state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TokenScope {
    /// Queries, payloads included.
    Read,
    /// Submissions, signals, worker calls and locks.
    Work,
    /// Actions on the work and locks of other callers (forced release, cancel, discard), deployment of policies, and
    /// access to the audit log.
    Admin,
}

impl TokenScope {
    /// All scopes, the smallest first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Work, Self::Admin];

    /// Returns the scope's name as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Work => "work",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is not the name of a scope.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown scope `{0}`; expected read, work or admin")]
pub struct UnknownScope(String);

impl FromStr for TokenScope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        let known = Self::ALL.into_iter().find(|scope| scope.name() == text);
        known.ok_or_else(|| UnknownScope(text.chars().take(32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_a_round_trip_and_debug_omits_its_secret() {
        let generated = GeneratedToken::generate().unwrap();
        let (hash, other) = (generated.hash, GeneratedToken::generate().unwrap());
        let now = Moment::from_micros(1);
        let issued = generated.into_issued(&NewToken::new("ci", TokenScope::Work), now, None);
        assert_eq!(issued.token.len(), 8 + 16 + 1 + 64);
        let secret = issued.token.rsplit('_').next().unwrap();
        assert!(!format!("{issued:?}").contains(secret));
        let presented = PresentedToken::parse(&issued.token).unwrap();
        assert_eq!(presented.id, issued.record.id);
        assert!(presented.matches(&hash) && !presented.matches(&other.hash) && !presented.matches(&[]));
    }

    #[test]
    fn malformed_tokens_are_not_parsed() {
        let good = format!("holdoff_{}_{}", "0".repeat(16), "a".repeat(64));
        assert!(PresentedToken::parse(&good).is_some());
        for bad in ["", "holdoff_", "holdoff__", &good[1..], &good.to_uppercase(), &format!("{good}0")] {
            assert!(PresentedToken::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn invalid_new_tokens_are_rejected() {
        let named = |name: &str| NewToken::new(name, TokenScope::Read);
        assert_eq!(named("").validate(), Err(InvalidToken::Name));
        assert_eq!(named("a\nb").validate(), Err(InvalidToken::Name));
        assert_eq!(named("ü").expires(Duration::ZERO).validate(), Err(InvalidToken::Expires));
        assert!(matches!(named("a").namespace("").validate(), Err(InvalidToken::Namespace(_))));
        assert_eq!(named("a").namespace("billing").expires(Duration::from_secs(1)).validate(), Ok(()));
    }
}
