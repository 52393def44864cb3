//! Request bodies and queries of locks.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdoff_lock::{Key, Lease, Nonce, Token};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::super::forms::{self, Wait};
use crate::access::Access;
use crate::problem::{Kind, Problem};
use crate::schema::WaitText;

/// The maximum wait. A response takes little longer than that.
const LONGEST_WAIT: Duration = Duration::from_secs(25);

/// Which lock.
#[derive(Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[schema(as = NamedLock)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    /// Its key, a text.
    key: Option<String>,
    /// Or its key, any bytes, in base64.
    key_base64: Option<String>,
    namespace: Option<String>,
}

/// A wish for a lock.
#[derive(Deserialize, ToSchema)]
#[schema(as = AcquireLock)]
#[serde(deny_unknown_fields)]
pub(super) struct AcquireForm {
    /// Its key, a text.
    key: Option<String>,
    /// Or its key, any bytes, in base64.
    key_base64: Option<String>,
    namespace: Option<String>,
    /// How long it is yours unless it is renewed.
    #[schema(value_type = Option<WaitText>)]
    pub(super) lease: Option<Wait>,
    /// How long to wait for it; at most `25s`.
    #[schema(value_type = Option<WaitText>)]
    wait: Option<Wait>,
    /// What the holder is called.
    pub(super) name: Option<String>,
}

/// A lock that is yours.
#[derive(Deserialize, ToSchema)]
#[schema(as = HeldLock)]
#[serde(deny_unknown_fields)]
pub(super) struct HeldForm {
    /// Its key, a text.
    key: Option<String>,
    /// Or its key, any bytes, in base64.
    key_base64: Option<String>,
    namespace: Option<String>,
    token: u64,
    /// What proves that it is yours.
    #[schema(value_type = String, format = "uuid")]
    lock: Uuid,
    /// For renewals: how long it lasts from now.
    #[schema(value_type = Option<WaitText>)]
    pub(super) lease: Option<Wait>,
}

/// There is nothing to say.
#[derive(Deserialize, ToSchema)]
#[schema(as = Nothing)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// The bytes of a key, in a namespace.
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) bytes: Vec<u8>,
}

impl Named {
    pub(super) fn place(self, access: &Access) -> Result<Place, Problem> {
        let bytes = match (self.key, self.key_base64) {
            (Some(key), None) => key.into_bytes(),
            (None, Some(key)) => {
                STANDARD.decode(key).map_err(|why| invalid(format!("key_base64 is no base64: {why}")))?
            }
            (Some(_), Some(_)) => return Err(invalid("expected `key` or `key_base64`, and there are both")),
            (None, None) => return Err(invalid("expected `key`, a text, or `key_base64`, any bytes")),
        };
        let namespace = access.namespace(self.namespace)?;
        // The key is validated before any request to the store.
        Key::new(&namespace, &bytes).map_err(|why| invalid(why.to_string()))?;
        Ok(Place { namespace, bytes })
    }
}

impl AcquireForm {
    pub(super) fn place(&mut self, access: &Access) -> Result<Place, Problem> {
        let (key, key_base64, namespace) = (self.key.take(), self.key_base64.take(), self.namespace.take());
        Named { key, key_base64, namespace }.place(access)
    }

    /// Returns the time to wait; zero unless the request sets it.
    pub(super) fn wait(&self) -> Result<Duration, Problem> {
        let wait = self.wait.as_ref().map_or(Duration::ZERO, |Wait(wait)| *wait);
        if wait > LONGEST_WAIT {
            let most = LONGEST_WAIT.as_secs();
            return Err(invalid(format!("wait: at most {most}s at once; ask again to wait longer")));
        }
        Ok(wait)
    }
}

impl HeldForm {
    pub(super) fn lease(&mut self, access: &Access) -> Result<Lease, Problem> {
        let (key, key_base64, namespace) = (self.key.take(), self.key_base64.take(), self.namespace.take());
        let Place { namespace, bytes } = Named { key, key_base64, namespace }.place(access)?;
        let key = Key::new(&namespace, bytes).map_err(|why| invalid(why.to_string()))?;
        Ok(Lease::new(key, Nonce::new(self.lock), Token::new(self.token)))
    }
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    forms::parse(body).map_err(invalid)
}

fn invalid(why: impl Into<String>) -> Problem {
    Problem::new(Kind::InvalidLock, why)
}
