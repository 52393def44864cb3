//! The credentials that steps name, with their tokens in memory.

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

/// How long before its end a token is renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(30);
/// How soon a renewal is tried again while the token is still good.
const RENEW_AGAIN: Duration = Duration::from_secs(5);

/// The credentials that steps name.
pub(super) struct Credentials {
    by_name: BTreeMap<String, Held>,
}

/// One credential: its token, and the way to the next.
struct Held {
    token: Arc<Mutex<Option<Token>>>,
    hosts: Hosts,
    refresher: Refresher,
}

/// A token in use. Its header's value is marked as sensitive, so that no `Debug` form shows it.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) header: HeaderValue,
    /// The refresher's, when it was fetched.
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

    /// A token for this address that is good as far as is known, fetched if there is none.
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

    /// Replaces the token that was refused in this generation, once for all who found it refused.
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
    // Only reasons of our own making: other errors might show what they were given.
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
                // Counted like the refresher counts: up by one with every refresh that worked.
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

    /// The token that could not be renewed, if it is good for a little longer.
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
        // A short life is used for half of it, at least.
        let use_for = |lifetime: Duration| lifetime.saturating_sub(RENEW_BEFORE).max(lifetime / 2);
        Ok(Self {
            header: token::bearer(&fresh.token)?,
            generation,
            renew_at: fresh.lifetime.map(|lifetime| now.saturating_add(use_for(lifetime))),
            ends_at: fresh.lifetime.map(|lifetime| now.saturating_add(lifetime)),
        })
    }

    /// The token itself, to find it where it should not be.
    pub(super) fn text(&self) -> Option<&str> {
        let text = str::from_utf8(self.header.as_bytes()).ok()?;
        text.strip_prefix("Bearer ")
    }
}

/// A panic elsewhere leaves a whole token or none.
fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
