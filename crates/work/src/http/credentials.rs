//! The credentials that steps name: their access tokens in memory, the hosts that they may be sent to, and the requests
//! that fetch tokens.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdoff_retry::{RefreshFailed, Refresher};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use parking_lot::Mutex;
use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::client::InvalidHttpSettings;
use super::request::destination;
use super::response;
use crate::{Credential, Fault, HttpSettings, NotifyRule, Secret, clock};

/// The time before its expiry at which a token is renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(30);
/// The wait before the next renewal attempt while the token is still valid.
const RENEW_AGAIN: Duration = Duration::from_secs(5);

/// The credentials that steps name.
pub(super) struct Credentials {
    by_name: BTreeMap<String, CredentialState>,
}

/// One credential: its current access token, its hosts, and its refresher.
struct CredentialState {
    token: Arc<Mutex<Option<AccessToken>>>,
    hosts: AllowedHosts,
    refresher: Refresher,
}

/// An access token in use. Its header value is marked as sensitive, so that no `Debug` form shows it.
#[derive(Clone, Debug)]
pub(super) struct AccessToken {
    pub(super) name: HeaderName,
    pub(super) header: HeaderValue,
    /// The refresher's generation when the token was fetched.
    pub(super) generation: u64,
    renew_at: Option<Duration>,
    ends_at: Option<Duration>,
}

impl Credentials {
    pub(super) fn new(settings: &HttpSettings, client: &Client) -> Result<Self, InvalidHttpSettings> {
        let mut by_name = BTreeMap::new();
        for (name, credential) in &settings.credentials {
            check(name, credential)?;
            let hosts = AllowedHosts::new(settings.credential_hosts.get(name).map_or(&[][..], Vec::as_slice));
            let held = CredentialState::new(credential.clone(), hosts, client.clone(), settings.timeout);
            by_name.insert(name.clone(), held);
        }
        Ok(Self { by_name })
    }

    /// Returns an access token for this URL that is valid as far as is known. Fetches one if there is none.
    pub(super) async fn token(&self, name: &str, url: &Url) -> Result<AccessToken, Fault> {
        let held = self.credential(name)?;
        if !held.hosts.include(url) {
            let host = destination(url);
            return Err(Fault::permanent(format!(
                "credential `{name}` is not permitted for {host}: list the host under `hosts` in [credentials.{name}], or \
                 correct the step"
            )));
        }
        let now = clock::now();
        let current = held.current();
        if let Some(token) = current.as_ref().filter(|token| token.renew_at.is_none_or(|at| now < at)) {
            return Ok(token.clone());
        }
        let generation = current.as_ref().map_or(0, |token| token.generation);
        match held.refresher.refresh(generation).await {
            Ok(()) => held.current().ok_or_else(|| not_refreshed(name, None)),
            Err(failed) => held.extend_use(generation).ok_or_else(|| not_refreshed(name, Some(&failed))),
        }
    }

    /// Replaces the access token of this generation, which was rejected, once for all steps that used it.
    pub(super) async fn refresh(&self, name: &str, generation: u64) -> Result<(), Fault> {
        let refreshed = self.credential(name)?.refresher.refresh(generation).await;
        refreshed.map_err(|failed| not_refreshed(name, Some(&failed)))
    }

    fn credential(&self, name: &str) -> Result<&CredentialState, Fault> {
        self.by_name.get(name).ok_or_else(|| {
            let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
            Fault::permanent(format!(
                "credential `{name}` is not defined: add [credentials.{name}] to the settings, or correct the step"
            ))
        })
    }
}

fn check(name: &str, credential: &Credential) -> Result<(), InvalidHttpSettings> {
    let wrong = |source: Box<dyn Error + Send + Sync>| {
        Err(InvalidHttpSettings::TokenUrl { credential: name.to_owned(), source })
    };
    let Some(url) = endpoint(credential) else { return Ok(()) };
    match Url::parse(url) {
        Err(error) => wrong(error.into()),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            wrong("the scheme is neither http nor https".into())
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            wrong("it contains a user name or a password".into())
        }
        Ok(_) => Ok(()),
    }
}

fn not_refreshed(name: &str, failed: Option<&RefreshFailed>) -> Fault {
    let message = format!("credential `{name}` could not be refreshed");
    // Only `NoToken` is shown, because other errors may contain the values that they were given.
    match failed.and_then(Error::source).and_then(|cause| cause.downcast_ref::<NoToken>()) {
        Some(reason) => Fault::transient(format!("{message}: {reason}")),
        None => Fault::transient(message),
    }
}

impl CredentialState {
    fn new(credential: Credential, hosts: AllowedHosts, client: Client, timeout: Duration) -> Self {
        let token = Arc::new(Mutex::new(None));
        let (credential, cell) = (Arc::new(credential), Arc::clone(&token));
        let refresher = Refresher::new(move || {
            let (credential, client, cell) = (Arc::clone(&credential), client.clone(), Arc::clone(&cell));
            async move {
                let fresh = fetch(&credential, &client, timeout).await?;
                let mut cell = cell.lock();
                // The refresher counts in the same way: one more with every successful refresh.
                let generation = cell.as_ref().map_or(0, |token: &AccessToken| token.generation) + 1;
                *cell = Some(AccessToken::new(&fresh, &credential, generation)?);
                Ok(())
            }
        });
        Self { token, hosts, refresher }
    }

    fn current(&self) -> Option<AccessToken> {
        self.token.lock().clone()
    }

    /// Returns the token that could not be renewed, if it has not expired yet.
    fn extend_use(&self, generation: u64) -> Option<AccessToken> {
        let now = clock::now();
        let mut cell = self.token.lock();
        let token = cell.as_mut().filter(|token| token.ends_at.is_none_or(|end| now < end))?;
        if token.generation == generation {
            let soon = now.saturating_add(RENEW_AGAIN);
            token.renew_at = Some(token.ends_at.map_or(soon, |end| soon.min(end)));
        }
        Some(token.clone())
    }
}

impl AccessToken {
    fn new(fresh: &FreshToken, credential: &Credential, generation: u64) -> Result<Self, NoToken> {
        let (name, header) = match credential {
            Credential::Token { header: Some(name), .. } => {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| NoToken::NotSendable)?;
                (name, sensitive(&fresh.token)?)
            }
            _ => (AUTHORIZATION, bearer(&fresh.token)?),
        };
        let now = clock::now();
        // A token with a short lifetime is used for at least half of it.
        let use_for = |lifetime: Duration| lifetime.saturating_sub(RENEW_BEFORE).max(lifetime / 2);
        Ok(Self {
            name,
            header,
            generation,
            renew_at: fresh.lifetime.map(|lifetime| now.saturating_add(use_for(lifetime))),
            ends_at: fresh.lifetime.map(|lifetime| now.saturating_add(lifetime)),
        })
    }

    /// Returns the token itself, which is needed to redact it in responses.
    pub(super) fn text(&self) -> Option<&str> {
        let text = str::from_utf8(self.header.as_bytes()).ok()?;
        Some(text.strip_prefix("Bearer ").unwrap_or(text))
    }
}

/// The hosts that a credential may be sent to. Without an entry it is sent to no host, because a caller that
/// may submit steps could otherwise have any credential sent to its own server.
#[derive(Debug, Default)]
pub(super) struct AllowedHosts(Vec<HostPattern>);

#[derive(Debug)]
struct HostPattern {
    /// The host; of a pattern with `*`, the part after the `*`, which begins with the dot.
    host: String,
    is_suffix: bool,
    port: Option<u16>,
}

impl AllowedHosts {
    pub(super) fn new(written: &[String]) -> Self {
        Self(written.iter().map(|text| HostPattern::read(text)).collect())
    }

    fn include(&self, url: &Url) -> bool {
        self.fits(url.host_str().unwrap_or_default(), url.port_or_known_default())
    }

    /// Returns whether a host is included whatever its port.
    pub(super) fn include_name(&self, host: &str) -> bool {
        self.fits(host, None)
    }

    fn fits(&self, host: &str, port: Option<u16>) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.0.iter().any(|pattern| pattern.fits(&host, port))
    }
}

impl HostPattern {
    fn read(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let (host, port) = match text.rsplit_once(':') {
            // The colons of an IPv6 address are in brackets.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (text.as_str(), None),
        };
        let is_suffix = host.starts_with("*.");
        Self { host: host.trim_start_matches('*').to_owned(), is_suffix, port }
    }

    fn fits(&self, host: &str, port: Option<u16>) -> bool {
        let is_port = self.port.is_none() || self.port == port;
        let is_host = if self.is_suffix {
            host.len() > self.host.len() && host.ends_with(&self.host)
        } else {
            host == self.host
        };
        is_port && is_host
    }
}

impl HttpSettings {
    /// Returns the settings in which each credential may also be sent to the hosts of the notifications that name it.
    /// The operator wrote both.
    pub(crate) fn with_notify_hosts(&self, notify: &[NotifyRule]) -> Self {
        let mut settings = self.clone();
        for rule in notify {
            let (Some(name), Ok(url)) = (&rule.credential, Url::parse(&rule.url)) else { continue };
            let (host, port) =
                (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(443));
            settings.credential_hosts.entry(name.clone()).or_default().push(format!("{host}:{port}"));
        }
        settings
    }
}

/// The maximum size of a secret, and of a token endpoint's response, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// An access token, and its lifetime if the endpoint reported one. It deliberately implements neither `Debug` nor
/// `Display`.
struct FreshToken {
    token: String,
    lifetime: Option<Duration>,
}

/// The reason why there is no token. It contains no secret.
#[derive(Debug, thiserror::Error)]
enum NoToken {
    #[error("the environment variable {0} is not set or not UTF-8")]
    Env(String),
    #[error("the file {} cannot be read: {kind}", path.display())]
    File { path: PathBuf, kind: io::ErrorKind },
    #[error("the secret is empty")]
    Empty,
    #[error("the token contains characters that cannot be sent")]
    NotSendable,
    #[error("no response from {0}")]
    NoAnswer(String),
    #[error("HTTP {status} from {from}")]
    Refused { status: u16, from: String },
    #[error("the response of {0} contains no access_token")]
    NoAccessToken(String),
}

/// Returns the token endpoint of a credential, if it has one.
fn endpoint(credential: &Credential) -> Option<&str> {
    match credential {
        Credential::Token { .. } => None,
        Credential::ClientCredentials { token_url, .. } => Some(token_url),
        Credential::Refresh { url, .. } => Some(url),
    }
}

/// Fetches an access token.
async fn fetch(credential: &Credential, client: &Client, timeout: Duration) -> Result<FreshToken, NoToken> {
    let request = match credential {
        Credential::Token { token, .. } => {
            return Ok(FreshToken { token: read_secret(token).await?, lifetime: None });
        }
        Credential::ClientCredentials { token_url, client_id, client_secret, scope } => {
            // RFC 6749, 2.3.1: both are form-encoded before they become a user name and a password.
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let secret = read_secret(client_secret).await?;
            client
                .post(token_url)
                .basic_auth(encoded(client_id), Some(encoded(&secret)))
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(grant(scope.as_deref()))
        }
        Credential::Refresh { url, secret } => {
            client.post(url).header(AUTHORIZATION, bearer(&read_secret(secret).await?)?)
        }
    };
    request_token(request, timeout).await
}

fn grant(scope: Option<&str>) -> String {
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if let Some(scope) = scope {
        form.append_pair("scope", scope);
    }
    form.finish()
}

/// Returns the `Authorization` header of a token.
fn bearer(token: &str) -> Result<HeaderValue, NoToken> {
    sensitive(&format!("Bearer {token}"))
}

/// Returns the value of a header. Its `Debug` form hides it.
fn sensitive(text: &str) -> Result<HeaderValue, NoToken> {
    let mut value = HeaderValue::try_from(text).map_err(|_| NoToken::NotSendable)?;
    value.set_sensitive(true);
    Ok(value)
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    /// The lifetime in seconds; some servers send the number as a string.
    #[serde(default)]
    expires_in: serde_json::Value,
}

async fn request_token(request: RequestBuilder, timeout: Duration) -> Result<FreshToken, NoToken> {
    let request = request.header(ACCEPT, "application/json").timeout(timeout);
    let mut response = request
        .send()
        .await
        .map_err(|error| NoToken::NoAnswer(error.url().map(destination).unwrap_or_default()))?;
    let from = destination(response.url());
    if !response.status().is_success() {
        return Err(NoToken::Refused { status: response.status().as_u16(), from });
    }
    let mut body = Vec::new();
    if response::read(&mut response, MAX_BYTES, &mut body).await.is_err() {
        return Err(NoToken::NoAnswer(from));
    }
    let answer: TokenResponse =
        serde_json::from_slice(&body).map_err(|_| NoToken::NoAccessToken(from.clone()))?;
    if answer.access_token.is_empty() {
        return Err(NoToken::NoAccessToken(from));
    }
    let expires_in = &answer.expires_in;
    let seconds =
        expires_in.as_f64().or_else(|| expires_in.as_str().and_then(|text| text.trim().parse().ok()));
    let lifetime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(FreshToken { token: answer.access_token, lifetime })
}

async fn read_secret(secret: &Secret) -> Result<String, NoToken> {
    let text = match secret {
        Secret::Env(name) => std::env::var(name).map_err(|_| NoToken::Env(name.clone()))?,
        Secret::File(path) => {
            let path = path.clone();
            let reading = tokio::task::spawn_blocking(move || {
                read_file(&path).map_err(|error| NoToken::File { path, kind: error.kind() })
            });
            reading.await.map_err(|_| NoToken::Empty)??
        }
    };
    let text = text.trim();
    if text.is_empty() { Err(NoToken::Empty) } else { Ok(text.to_owned()) }
}

fn read_file(path: &Path) -> io::Result<String> {
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    io::read_to_string(std::fs::File::open(path)?.take(limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes(written: &[&str], url: &str) -> bool {
        let written: Vec<String> = written.iter().map(ToString::to_string).collect();
        AllowedHosts::new(&written).include(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_credential_is_sent_only_to_its_listed_hosts() {
        assert!(goes(&["api.example.com"], "https://API.example.com./x"));
        assert!(goes(&["api.example.com"], "https://api.example.com:8443/"));
        assert!(goes(&["api.example.com:443"], "https://api.example.com/"));
        assert!(!goes(&["api.example.com:443"], "http://api.example.com/"));
        assert!(goes(&["[::1]:80"], "http://[::1]/") && goes(&["[::1]"], "http://[0:0::1]:9/"));
        for wrong in [
            "https://example.com/",
            "https://api.example.com.evil.example/",
            "https://evil.example/?api.example.com",
            "https://xapi.example.com/",
            "https://api.example.com@evil.example/",
        ] {
            assert!(!goes(&["api.example.com"], wrong), "{wrong}");
        }
        assert!(!goes(&[], "https://api.example.com/"));
    }

    #[test]
    fn a_star_matches_subdomains_only() {
        assert!(goes(&["*.example.com"], "https://a.b.example.com/"));
        for wrong in ["https://example.com/", "https://evilexample.com/", "https://example.com.evil.example/"]
        {
            assert!(!goes(&["*.example.com"], wrong), "{wrong}");
        }
        assert!(goes(&["*.example.com:8443"], "https://a.example.com:8443/"));
        assert!(!goes(&["*.example.com:8443"], "https://a.example.com/"));
    }
}
