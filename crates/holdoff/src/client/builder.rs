//! The options of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::Policy;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::{Client, Error, Shared};

/// Exceeds the longest response time of the daemon.
const TIMEOUT: Duration = Duration::from_secs(40);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds a [`Client`].
#[derive(Clone)]
pub struct ClientBuilder {
    address: String,
    token: Option<String>,
    policy: Policy,
}

/// Omits the API token.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, token, policy } = self;
        let token = token.as_ref().map(|_| "…");
        f.debug_struct("ClientBuilder")
            .field("address", address)
            .field("token", &token)
            .field("policy", policy)
            .finish()
    }
}

impl ClientBuilder {
    pub(super) fn new(address: &str) -> Self {
        Self { address: address.to_owned(), token: None, policy: Policy::standard() }
    }

    /// Sets the API token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the retry policy; the default is `standard`.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Builds the client. It sends no request yet.
    pub fn build(self) -> Result<Client, Error> {
        let wrong = |why: &str| Error::Address { address: self.address.clone(), why: why.to_owned() };
        let url = reqwest::Url::parse(&self.address).map_err(|why| wrong(&why.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
            return Err(wrong("expected http:// or https://"));
        }
        let mut headers = HeaderMap::new();
        if let Some(token) = &self.token {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| Error::Token)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            // The daemon never redirects, and the API token must not reach another server.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|why| Error::unreachable(&why))?;
        let address = self.address.trim_end_matches('/').to_owned();
        Ok(Client { shared: Arc::new(Shared { http, address, policy: self.policy }) })
    }
}
