//! API tokens: `holdoff_<id>_<secret>`.

use std::fmt::{self, Write};
use std::time::Duration;

use holdoff_lock::Key;
use holdoff_work::Moment;
use serde::Serialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Scope;
use crate::Error;

/// The prefix of every token, by which secret scanners find it.
const PREFIX: &str = "holdoff_";

const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const LONGEST_NAME: usize = 100;
/// The maximum lifetime: ten years.
const LONGEST_LIFE: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// A token to be created.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NewToken {
    /// The name of its owner, for display.
    pub name: String,
    /// Its scope.
    pub scope: Scope,
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
    /// The name is empty, too long, or contains a control character.
    #[error("a token's name has 1 to {LONGEST_NAME} characters, none of them a control character")]
    Name,
    /// The namespace is invalid.
    #[error("{0}")]
    Namespace(String),
    /// The lifetime is below one second or above ten years.
    #[error("a token is good for at least a second, and for ten years at most")]
    Expires,
}

impl NewToken {
    /// Creates a token for all namespaces that is valid until it is revoked.
    pub fn new(name: impl Into<String>, scope: Scope) -> Self {
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

    pub(super) fn check(&self) -> Result<(), InvalidToken> {
        let length = self.name.chars().count();
        if !(1..=LONGEST_NAME).contains(&length) || self.name.chars().any(char::is_control) {
            return Err(InvalidToken::Name);
        }
        if self.expires.is_some_and(|after| after < Duration::from_secs(1) || after > LONGEST_LIFE) {
            return Err(InvalidToken::Expires);
        }
        let checked = self.namespace.as_ref().map(|namespace| Key::new(namespace, "any"));
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
    pub scope: Scope,
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
    pub fn is_good(&self, now: Moment) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A token that was just created. The token itself cannot be shown again.
#[derive(Clone)]
#[non_exhaustive]
pub struct Issued {
    /// Its record.
    pub record: TokenRecord,
    /// The token itself.
    pub token: String,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("record", &self.record).finish_non_exhaustive()
    }
}

/// A generated token that is not stored yet.
pub(super) struct Fresh {
    pub(super) id: String,
    pub(super) hash: [u8; 32],
    secret: String,
}

impl Fresh {
    /// Generates a token from the system's random number generator.
    pub(super) fn draw() -> Result<Self, Error> {
        let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
        let filled = getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut secret));
        filled.map_err(|source| Error::Keep { transient: false, source: Box::new(source) })?;
        let secret = hex(&secret);
        Ok(Self { id: hex(&id), hash: hash(&secret), secret })
    }

    pub(super) fn issued(self, token: &NewToken, created_at: Moment, expires_at: Option<Moment>) -> Issued {
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
        Issued { record, token: text }
    }
}

/// A token as a caller presents it. It implements neither `Debug` nor `Display`, on purpose.
pub(crate) struct Presented<'t> {
    /// The id for the lookup. The time that the lookup takes reveals nothing about the secret.
    pub(crate) id: &'t str,
    hash: [u8; 32],
}

impl<'t> Presented<'t> {
    /// Parses a token, whether or not the store has it.
    pub(crate) fn read(text: &'t str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hex = |text: &str, bytes: usize| {
            text.len() == 2 * bytes && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        (is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES)).then(|| Self { id, hash: hash(secret) })
    }

    /// Returns whether the secret has this hash. The comparison takes constant time.
    pub(crate) fn is(&self, hash: &[u8]) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_shown_and_shows_itself_to_nobody() {
        let fresh = Fresh::draw().unwrap();
        let (hash, other) = (fresh.hash, Fresh::draw().unwrap());
        let now = Moment::from_micros(1);
        let issued = fresh.issued(&NewToken::new("ci", Scope::Work), now, None);
        assert_eq!(issued.token.len(), 8 + 16 + 1 + 64);
        let secret = issued.token.rsplit('_').next().unwrap();
        assert!(!format!("{issued:?}").contains(secret));
        let presented = Presented::read(&issued.token).unwrap();
        assert_eq!(presented.id, issued.record.id);
        assert!(presented.is(&hash) && !presented.is(&other.hash) && !presented.is(&[]));
    }

    #[test]
    fn what_is_no_token_is_not_looked_up() {
        let good = format!("holdoff_{}_{}", "0".repeat(16), "a".repeat(64));
        assert!(Presented::read(&good).is_some());
        for bad in ["", "holdoff_", "holdoff__", &good[1..], &good.to_uppercase(), &format!("{good}0")] {
            assert!(Presented::read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_made_is_said() {
        let named = |name: &str| NewToken::new(name, Scope::Read);
        assert_eq!(named("").check(), Err(InvalidToken::Name));
        assert_eq!(named("a\nb").check(), Err(InvalidToken::Name));
        assert_eq!(named("ü").expires(Duration::ZERO).check(), Err(InvalidToken::Expires));
        assert!(matches!(named("a").namespace("").check(), Err(InvalidToken::Namespace(_))));
        assert_eq!(named("a").namespace("billing").expires(Duration::from_secs(1)).check(), Ok(()));
    }
}
