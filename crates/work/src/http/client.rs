//! The clients that send the requests.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, ClientBuilder};
use url::Url;

use super::address::{self, Forbidden, GuardedResolver, Names};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of idle connections per host.
const MAX_IDLE: usize = 64;

/// The reason why no HTTP request can be sent with these settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHttpSettings {
    /// The token endpoint of a credential is invalid.
    #[error("the URL of the credential `{credential}` is not one that can be called: {reason}")]
    TokenUrl {
        /// The credential.
        credential: String,
        /// The reason.
        reason: String,
    },
    /// The TLS root certificates of this machine cannot be used.
    #[error("no HTTPS client can be made: {reason}; are the system's root certificates installed?")]
    Client {
        /// The reason.
        reason: String,
    },
}

/// The destinations that requests may reach, and the way to them.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    /// The addresses that steps must not call.
    pub(super) forbidden: Option<Forbidden>,
    pub(super) max_redirects: usize,
    /// Whether the proxies of the environment are used. A proxy resolves names itself, so none is used if addresses
    /// are checked.
    pub(super) proxies: bool,
    /// The resolver, used if addresses are checked.
    pub(super) names: Names,
}

/// The clients that send the requests, all without cookies, referers and compression.
pub(super) struct Clients {
    /// For steps.
    pub(super) following: Client,
    /// For steps that expect a redirect themselves.
    pub(super) still: Client,
    /// For the token endpoints in the settings. The operator configured them, so they may have private addresses, but
    /// a secret follows no redirect.
    pub(super) trusted: Client,
}

impl Clients {
    pub(super) fn new(reach: Reach) -> Result<Self, InvalidHttpSettings> {
        let open = Reach { forbidden: None, ..reach };
        let trusted = build(plain(open).redirect(Policy::none()))?;
        let still = match reach.forbidden {
            Some(_) => build(plain(reach).redirect(Policy::none()))?,
            None => trusted.clone(),
        };
        let following = match reach.max_redirects {
            0 => still.clone(),
            _ => build(plain(reach).redirect(Policy::custom(move |attempt| follow(attempt, reach))))?,
        };
        Ok(Self { following, still, trusted })
    }
}

fn plain(reach: Reach) -> ClientBuilder {
    let builder = Client::builder()
        .user_agent(concat!("holdoff/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE)
        .referer(false);
    match reach.forbidden {
        Some(forbidden) => {
            builder.no_proxy().dns_resolver(Arc::new(GuardedResolver { forbidden, names: reach.names }))
        }
        None if reach.proxies => builder,
        None => builder.no_proxy(),
    }
}

fn build(builder: ClientBuilder) -> Result<Client, InvalidHttpSettings> {
    builder.build().map_err(|error| {
        let cause = error.source().map(ToString::to_string);
        InvalidHttpSettings::Client { reason: cause.unwrap_or_else(|| error.to_string()) }
    })
}

/// The reason why a redirect was not followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum RefusedRedirect {
    #[error("more than {0} times")]
    TooMany(usize),
    #[error("from https to http, where everybody could read it")]
    Downgrade,
    #[error("to something that is not HTTP")]
    NotHttp,
}

fn follow(attempt: Attempt<'_>, reach: Reach) -> Action {
    match obstacle(attempt.previous(), attempt.url(), reach) {
        Ok(()) => attempt.follow(),
        Err(obstacle) => attempt.error(obstacle),
    }
}

/// Checks whether a redirect to the next URL is permitted. The first of the previous URLs is the step's own.
fn obstacle(previous: &[Url], next: &Url, reach: Reach) -> Result<(), Box<dyn Error + Send + Sync>> {
    if previous.len() > reach.max_redirects {
        return Err(RefusedRedirect::TooMany(reach.max_redirects).into());
    }
    if !matches!(next.scheme(), "http" | "https") {
        return Err(RefusedRedirect::NotHttp.into());
    }
    if next.scheme() == "http" && previous.last().is_some_and(|url| url.scheme() == "https") {
        return Err(RefusedRedirect::Downgrade.into());
    }
    match reach.forbidden {
        Some(forbidden) => Ok(address::judge(next, forbidden)?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_never_leaves_https() {
        let reach = Reach { forbidden: None, max_redirects: 2, proxies: false, names: address::ask_system };
        let url = |text: &str| Url::parse(text).unwrap();
        let step = |from: &str, to: &str| obstacle(&[url(from)], &url(to), reach);
        assert!(step("http://a/", "https://a/").is_ok());
        assert!(step("https://a/", "https://b/").is_ok());
        let refused = step("https://a:1/", "http://a:1/").unwrap_err();
        assert_eq!(refused.downcast_ref(), Some(&RefusedRedirect::Downgrade));
    }
}
