//! The credentials that steps name, with their access tokens in memory.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdoff_retry::{RefreshFailed, Refresher};
use http::HeaderValue;
use reqwest::Client;
use url::Url;

use super::check::destination;
use super::client::InvalidHttpSettings;
use super::hosts::Hosts;
use super::token::{self, FreshToken, NoToken};
use crate::{Credential, Fault, HttpSettings, clock};

/// The time before its expiry at which a token is renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(30);
/// The wait before the next renewal attempt while the token is still valid.
const RENEW_AGAIN: Duration = Duration::from_secs(5);

/// The credentials that steps name.
pub(super) struct Credentials {
    by_name: BTreeMap<String, Held>,
}

/// One credential: its current access token, its hosts, and its refresher.
struct Held {
    token: Arc<Mutex<Option<Token>>>,
    hosts: Hosts,
    refresher: Refresher,
}

/// An access token in use. Its header value is marked as sensitive, so that no `Debug` form shows it.
#[derive(Clone, Debug)]
pub(super) struct Token {
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
            let hosts = Hosts::new(settings.credential_hosts.get(name).map_or(&[][..], Vec::as_slice));
            let held = Held::new(credential.clone(), hosts, client.clone(), settings.timeout);
            by_name.insert(name.clone(), held);
        }
        Ok(Self { by_name })
    }

    /// Returns an access token for this URL that is valid as far as is known. Fetches one if there is none.
    pub(super) async fn token(&self, name: &str, url: &Url) -> Result<Token, Fault> {
        let held = self.held(name)?;
        if !held.hosts.include(url) {
            let host = destination(url);
            return Err(Fault::permanent(format!(
                "the credential `{name}` is not for {host}: list the host under `hosts` in [credentials.{name}], or \
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
            Err(failed) => held.outlive(generation).ok_or_else(|| not_refreshed(name, Some(&failed))),
        }
    }

    /// Replaces the access token of this generation, which was rejected, once for all steps that used it.
    pub(super) async fn refresh(&self, name: &str, generation: u64) -> Result<(), Fault> {
        let refreshed = self.held(name)?.refresher.refresh(generation).await;
        refreshed.map_err(|failed| not_refreshed(name, Some(&failed)))
    }

    fn held(&self, name: &str) -> Result<&Held, Fault> {
        self.by_name.get(name).ok_or_else(|| {
            let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
            Fault::permanent(format!(
                "there is no credential `{name}`: add [credentials.{name}] to the settings, or correct the step"
            ))
        })
    }
}

fn check(name: &str, credential: &Credential) -> Result<(), InvalidHttpSettings> {
    let wrong = |reason: &str| {
        Err(InvalidHttpSettings::TokenUrl { credential: name.to_owned(), reason: reason.to_owned() })
    };
    let Some(url) = token::endpoint(credential) else { return Ok(()) };
    match Url::parse(url) {
        Err(error) => wrong(&error.to_string()),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => wrong("it is neither http: nor https:"),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            wrong("it holds a user or a password")
        }
        Ok(_) => Ok(()),
    }
}

fn not_refreshed(name: &str, failed: Option<&RefreshFailed>) -> Fault {
    let message = format!("the credential `{name}` could not be refreshed");
    // Only `NoToken` is shown, because other errors may contain the values that they were given.
    match failed.and_then(Error::source).and_then(|cause| cause.downcast_ref::<NoToken>()) {
        Some(reason) => Fault::transient(format!("{message}: {reason}")),
        None => Fault::transient(message),
    }
}

impl Held {
    fn new(credential: Credential, hosts: Hosts, client: Client, timeout: Duration) -> Self {
        let token = Arc::new(Mutex::new(None));
        let (credential, cell) = (Arc::new(credential), Arc::clone(&token));
        let refresher = Refresher::new(move || {
            let (credential, client, cell) = (Arc::clone(&credential), client.clone(), Arc::clone(&cell));
            async move {
                let fresh = token::fetch(&credential, &client, timeout).await?;
                let mut cell = lock(&cell);
                // The refresher counts in the same way: one more with every successful refresh.
                let generation = cell.as_ref().map_or(0, |token: &Token| token.generation) + 1;
                *cell = Some(Token::new(&fresh, generation)?);
                Ok(())
            }
        });
        Self { token, hosts, refresher }
    }

    fn current(&self) -> Option<Token> {
        lock(&self.token).clone()
    }

    /// Returns the token that could not be renewed, if it has not expired yet.
    fn outlive(&self, generation: u64) -> Option<Token> {
        let now = clock::now();
        let mut cell = lock(&self.token);
        let token = cell.as_mut().filter(|token| token.ends_at.is_none_or(|end| now < end))?;
        if token.generation == generation {
            let soon = now.saturating_add(RENEW_AGAIN);
            token.renew_at = Some(token.ends_at.map_or(soon, |end| soon.min(end)));
        }
        Some(token.clone())
    }
}

impl Token {
    fn new(fresh: &FreshToken, generation: u64) -> Result<Self, NoToken> {
        let now = clock::now();
        // A token with a short lifetime is used for at least half of it.
        let use_for = |lifetime: Duration| lifetime.saturating_sub(RENEW_BEFORE).max(lifetime / 2);
        Ok(Self {
            header: token::bearer(&fresh.token)?,
            generation,
            renew_at: fresh.lifetime.map(|lifetime| now.saturating_add(use_for(lifetime))),
            ends_at: fresh.lifetime.map(|lifetime| now.saturating_add(lifetime)),
        })
    }

    /// Returns the token itself, which is needed to redact it in responses.
    pub(super) fn text(&self) -> Option<&str> {
        let text = str::from_utf8(self.header.as_bytes()).ok()?;
        text.strip_prefix("Bearer ")
    }
}

/// Locks the cell. A panic of another thread leaves either a complete token or none, so poisoning is ignored.
fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
