//! Authentication and authorization of requests: the middleware, the access requirements of routes, and rejections.
//!
//! The API's document defines the requirement of each route ([`crate::api::requirement_of`]).

mod cache;
mod caller;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdoff_policy::Jitter;
use holdoff_retry::Backoff;
use tokio::sync::Mutex;
use tracing::Instrument;

use crate::problem::{Kind, Problem};
use crate::rate::{ConcurrencyLimit, Rate, RateLimiter, Running};
use crate::token_store::{AuditEvent, PresentedToken, TokenScope, TokenStore};
use crate::{Error, Settings, api, clock, dashboard, metrics};
use cache::TokenCache;

pub(crate) use caller::Caller;

/// The rate at which one address may present invalid tokens.
const INVALID_TOKENS: Rate = Rate::new(10, Duration::from_secs(10));

/// The number of logins in progress from one address.
const MAX_LOGINS: u32 = 8;

/// How long an action waits for its entry in the audit log.
const RECORD_TIMEOUT: Duration = Duration::from_secs(300);

/// Timeout for the lookup of a token on a route that needs none.
const OPTIONAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The address of the client at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerIp(pub(crate) IpAddr);

/// The id of a request in the log.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// Authenticates callers and checks their scope.
pub(crate) struct Auth {
    token_store: TokenStore,
    cache: TokenCache,
    is_open: bool,
    /// The accepted values of a request's `Host`.
    pub(crate) hosts: Hosts,
    rates: Option<RateLimiter<String>>,
    invalid: RateLimiter<IpAddr>,
    lookup_locks: LookupLocks,
    logins: ConcurrencyLimit<IpAddr>,
    /// Whether connections use TLS, and the path prefix: the name of the session's cookie depends on them.
    has_tls: bool,
    base: String,
}

/// The host names that the daemon accepts as a request's `Host`.
#[derive(Clone, Debug)]
pub(crate) enum Hosts {
    /// The names of loopback. If no token is needed, any web page can make a browser send a request to the daemon.
    Loopback,
    /// The names of loopback and these names; without any names, every host. A browser does not attach an API token to
    /// a request by itself, so other web pages cannot send one.
    Named(Vec<String>),
}

impl Auth {
    pub(crate) fn new(token_store: TokenStore, settings: &Settings) -> Self {
        let is_open = !settings.require_tokens;
        let hosts = if is_open { Hosts::Loopback } else { Hosts::Named(settings.hosts.clone()) };
        Self {
            cache: TokenCache::new(token_store.clone()),
            token_store,
            is_open,
            hosts,
            rates: settings.rate.map(RateLimiter::new),
            invalid: RateLimiter::new(INVALID_TOKENS),
            lookup_locks: LookupLocks::default(),
            logins: ConcurrencyLimit::new(MAX_LOGINS),
            has_tls: settings.tls.is_some(),
            base: settings.prefix.clone(),
        }
    }

    /// Returns whether the client's connection uses TLS: to the daemon, or to a proxy in front of it.
    pub(crate) fn is_encrypted(&self, headers: &HeaderMap) -> bool {
        dashboard::is_encrypted(self.has_tls, headers)
    }

    /// Returns the session token of a request's cookies.
    fn session<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        dashboard::cookie(headers, dashboard::cookie_name(self.is_encrypted(headers), &self.base))
    }

    /// Returns a place for a login, or `None` if too many from its address are in progress.
    pub(crate) fn enter_login(&self, peer: Option<PeerIp>) -> Option<Running<IpAddr>> {
        self.logins.enter(unit_of(peer))
    }

    /// Returns whether the daemon serves callers without a token.
    pub(crate) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Authenticates a login and returns its API token.
    pub(crate) async fn login(
        &self,
        text: &str,
        peer: Option<PeerIp>,
    ) -> Result<Arc<crate::TokenRecord>, AuthError> {
        let token = self.verify(text, TokenScope::Read, peer).await?;
        // A session cannot create another session: the second would outlive the token that both derive from.
        if token.session_of.is_some() {
            return Err(AuthError::Unauthenticated(TokenScope::Read));
        }
        self.check_rate(&token)?;
        Ok(token)
    }

    /// Takes one request from the rate limit of a token. A token and its sessions share one limit.
    fn check_rate(&self, token: &crate::TokenRecord) -> Result<(), AuthError> {
        let owner = token.session_of.as_ref().unwrap_or(&token.id);
        self.rates
            .as_ref()
            .map_or(Ok(()), |rates| rates.take(owner, clock::now()))
            .map_err(AuthError::RateLimited)
    }

    /// Authenticates and authorizes a request. Pages accept a session as well as a token.
    async fn authorize(
        &self,
        requirement: Requirement,
        headers: &HeaderMap,
        session: Option<&str>,
        peer: Option<PeerIp>,
    ) -> Result<Caller, AuthError> {
        let (scope, namespaced) = match requirement {
            Requirement::Public => return Ok(Caller::Anonymous),
            _ if self.is_open => return Ok(Caller::Loopback),
            Requirement::OptionalToken => return Ok(self.authenticate_optional(headers, peer).await),
            Requirement::Scope { scope, namespaced } => (scope, namespaced),
        };
        let bearer_token = bearer(headers);
        let Some(text) = bearer_token.or(session) else {
            metrics::record_unauthenticated("missing");
            return Err(AuthError::Unauthenticated(scope));
        };
        let token = self.verify(text, scope, peer).await?;
        // A session belongs to a browser's cookie and is valid for pages only.
        if bearer_token.is_some() && token.session_of.is_some() {
            return Err(AuthError::Unauthenticated(scope));
        }
        self.check_rate(&token)?;
        if token.scope < scope {
            return Err(AuthError::InsufficientScope(scope));
        }
        if token.namespace.is_some() && !namespaced {
            return Err(AuthError::NamespaceToken(scope));
        }
        Ok(Caller::Token(token))
    }

    /// Authenticates a caller on a route where a token is optional. An invalid token is ignored, and a slow lookup ends
    /// after [`OPTIONAL_TIMEOUT`].
    async fn authenticate_optional(&self, headers: &HeaderMap, peer: Option<PeerIp>) -> Caller {
        let Some(text) = bearer(headers) else { return Caller::Anonymous };
        let verified =
            tokio::time::timeout(OPTIONAL_TIMEOUT, self.verify(text, TokenScope::Read, peer)).await;
        verified.ok().and_then(Result::ok).map_or(Caller::Anonymous, Caller::Token)
    }

    /// Returns the record of the presented token if the token is valid. A secret has 256 bits, so a limit on guesses
    /// protects nothing: the daemon looks every token up, and throttles only the failures of an address, so that a
    /// client cannot lock out others behind the same address.
    async fn verify(
        &self,
        text: &str,
        scope: TokenScope,
        peer: Option<PeerIp>,
    ) -> Result<Arc<crate::TokenRecord>, AuthError> {
        let from = unit_of(peer);
        let invalid = || match self.invalid.take(&from, clock::now()) {
            Ok(()) => {
                metrics::record_unauthenticated("refused");
                AuthError::Unauthenticated(scope)
            }
            Err(wait) => {
                metrics::record_unauthenticated("throttled");
                AuthError::TooManyInvalid(wait)
            }
        };
        let presented = PresentedToken::parse(text).ok_or_else(invalid)?;
        // One lookup at a time for each address, so that a flood of unknown tokens from one address does not occupy the
        // store's connections. A token that was valid recently does not wait behind such a flood.
        let _serialized = match self.cache.get(&presented) {
            cache::Cached::Fresh(token) => return Ok(token),
            cache::Cached::Stale => None,
            cache::Cached::Miss => Some(self.lookup_locks.of(&from).lock().await),
        };
        self.cache.fetch(&presented).await.map_err(AuthError::StoreUnavailable)?.ok_or_else(invalid)
    }

    /// Appends an event to the audit log. The action is done, so this waits for a store that does not answer, at most
    /// [`RECORD_TIMEOUT`].
    async fn record(&self, event: AuditEvent) {
        let until = clock::now().saturating_add(RECORD_TIMEOUT);
        let mut backoff =
            Backoff::exponential(Duration::from_millis(50), Duration::from_secs(2), Jitter::Equal);
        while let Err(error) = self.token_store.record(&event).await {
            if matches!(error, Error::TokenStore { transient: true, .. }) && clock::now() < until {
                backoff.wait().await;
                continue;
            }
            let (actor, action, object) = (&event.actor, &event.action, &event.object);
            tracing::error!(%error, actor, action, object, "failed to record an action in the audit log");
            return;
        }
    }
}

/// Middleware that authenticates every request and writes the actions of operators to the audit log.
pub(crate) async fn authenticate(
    State(auth): State<Arc<Auth>>,
    mut request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let requirement = api::requirement_of(&method, route.as_ref().map(MatchedPath::as_str));
    let peer = request.extensions().get::<PeerIp>().copied();
    // An unknown path also accepts the session: a user who is logged in gets 404 instead of the login page.
    let is_page = route.as_ref().is_none_or(|route| api::is_page(route.as_str()));
    let session = is_page.then(|| auth.session(request.headers())).flatten();
    let caller = match auth.authorize(requirement, request.headers(), session, peer).await {
        Ok(caller) => caller,
        Err(error) => return error.into_response(),
    };
    let id = request.extensions().get::<RequestId>().map(|RequestId(id)| id.clone());
    request.extensions_mut().insert(caller.clone());
    let is_admin = matches!(requirement, Requirement::Scope { scope: TokenScope::Admin, .. });
    if !is_admin || matches!(method, Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let act = async move {
        let mut response = next.run(request).await;
        let described = response.extensions_mut().remove::<AuditEvent>();
        let is_change = (response.status().is_success() || response.status().is_redirection())
            && response.extensions_mut().remove::<NoChange>().is_none();
        // The audit log also records an action that its handler did not describe.
        let undescribed =
            || AuditEvent::new(format!("{method} {}", route.as_ref().map_or("", MatchedPath::as_str)), "");
        if let Some(event) = described.or_else(|| is_change.then(undescribed)) {
            auth.record(caller.attribute(event, id)).await;
        }
        response
    };
    // The action runs to its end even if the client disconnects, so that no action is missing from the audit log.
    let done = tokio::spawn(act.in_current_span()).await;
    done.unwrap_or_else(|_| {
        Problem::new(Kind::Internal, "internal error; the log has the details under this request's id")
            .into_response()
    })
}

/// Marks a response to an operator's request that changed nothing, such as a dry run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoChange;

/// Returns the token of the `Authorization: Bearer` header.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn unit_of(peer: Option<PeerIp>) -> IpAddr {
    peer.map_or(IpAddr::from([0; 16]), |PeerIp(address)| network(address))
}

/// Returns the unit of addresses that shares one limit: an IPv4 address, or the /64 of an IPv6 address, because one
/// client usually has a whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// The access requirement of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requirement {
    /// No token: the response reveals nothing.
    Public,
    /// No token. A caller with a token gets more details.
    OptionalToken,
    /// A token of at least this scope.
    Scope {
        scope: TokenScope,
        /// Whether a token of one namespace suffices, because the handler confines itself to that namespace.
        namespaced: bool,
    },
}

/// The reason why a request is refused.
#[derive(Debug)]
pub(crate) enum AuthError {
    /// The token is missing or invalid. The response does not reveal which.
    Unauthenticated(TokenScope),
    /// The token's scope is too small.
    InsufficientScope(TokenScope),
    /// The token is limited to one namespace, and the request cannot be confined to one.
    NamespaceToken(TokenScope),
    /// The token has exceeded its rate limit.
    RateLimited(Duration),
    /// The address has presented too many invalid tokens.
    TooManyInvalid(Duration),
    /// The store did not answer, so the token is unknown.
    StoreUnavailable(Error),
}

impl IntoResponse for AuthError {
    fn into_response(self) -> Response {
        match self {
            Self::Unauthenticated(scope) => {
                let detail = format!(
                    "this request needs an API token of scope {scope} in the header `Authorization: Bearer TOKEN`; \
                     `holdoff token create` creates one"
                );
                let challenge = format!("Bearer realm=\"holdoff\", scope=\"{scope}\"");
                with_challenge(Problem::new(Kind::Unauthorized, detail), &challenge)
            }
            Self::InsufficientScope(scope) => {
                let detail = format!("this request needs an API token of scope {scope}");
                with_challenge(Problem::new(Kind::Forbidden, detail), &insufficient_scope(scope))
            }
            Self::NamespaceToken(scope) => {
                let detail = format!("this request needs an API token of scope {scope} for all namespaces");
                with_challenge(Problem::new(Kind::Forbidden, detail), &insufficient_scope(scope))
            }
            Self::RateLimited(wait) => {
                let detail = "this API token has exceeded its rate limit (server.rate)";
                Problem::new(Kind::TooManyRequests, detail).retry_after(wait).into_response()
            }
            Self::TooManyInvalid(wait) => {
                let detail = "this address has sent too many invalid API tokens";
                Problem::new(Kind::TooManyRequests, detail).retry_after(wait).into_response()
            }
            Self::StoreUnavailable(error) => {
                tracing::warn!(%error, "failed to look up an API token");
                Problem::unavailable("the store did not answer in time; retry the request").into_response()
            }
        }
    }
}

fn insufficient_scope(scope: TokenScope) -> String {
    format!("Bearer realm=\"holdoff\", error=\"insufficient_scope\", scope=\"{scope}\"")
}

fn with_challenge(problem: Problem, challenge: &str) -> Response {
    let mut response = problem.into_response();
    if let Ok(challenge) = HeaderValue::from_str(challenge) {
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

const LOCKS: usize = 64;

struct LookupLocks {
    locks: [Mutex<()>; LOCKS],
    hasher: RandomState,
}

impl Default for LookupLocks {
    fn default() -> Self {
        Self { locks: std::array::from_fn(|_| Mutex::new(())), hasher: RandomState::new() }
    }
}

impl LookupLocks {
    fn of(&self, address: &IpAddr) -> &Mutex<()> {
        let [first, ..] = &self.locks;
        let index = self.hasher.hash_one(address) % LOCKS as u64;
        usize::try_from(index).ok().and_then(|index| self.locks.get(index)).unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_prefix_shares_one_limit() {
        let network = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn the_bearer_token_follows_its_scheme() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, text.parse().unwrap());
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(read("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(read("bearer  abc ").as_deref(), Some("abc"));
        assert_eq!(read("Basic abc"), None);
        assert_eq!(read("abc"), None);
    }
}
