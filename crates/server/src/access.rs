//! Authentication and authorization of requests.

mod known;
mod need;
mod refusal;
mod turns;
mod who;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;

use known::Known;
pub(crate) use need::Need;
pub(crate) use refusal::Refusal;
use turns::Turns;
pub(crate) use who::Access;

use crate::keep::{Deed, Keep, Presented, Scope};
use crate::problem::{Kind, Problem};
use crate::rate::{Buckets, Rate};
use crate::{Settings, api, clock, dashboard, metrics};

/// The rate at which one address may present invalid tokens.
const WRONG_TOKENS: Rate = Rate::new(10, Duration::from_secs(10));

/// Timeout for the lookup of a token on a route that needs none.
const WELCOME: Duration = Duration::from_secs(1);

/// The address of the client at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The id of a request in the log.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// Authenticates callers and checks their scope.
pub(crate) struct Door {
    keep: Keep,
    known: Known,
    is_open: bool,
    /// The accepted values of a request's `Host`.
    pub(crate) hosts: Hosts,
    rates: Option<Buckets<String>>,
    wrong: Buckets<IpAddr>,
    turns: Turns,
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

impl Door {
    pub(crate) fn new(keep: Keep, settings: &Settings) -> Self {
        let is_open = !settings.require_tokens;
        let hosts = if is_open { Hosts::Loopback } else { Hosts::Named(settings.hosts.clone()) };
        Self {
            known: Known::new(keep.clone()),
            keep,
            is_open,
            hosts,
            rates: settings.rate.map(Buckets::new),
            wrong: Buckets::new(WRONG_TOKENS),
            turns: Turns::default(),
        }
    }

    /// Returns whether the daemon serves callers without a token.
    pub(crate) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Authenticates a login and returns its API token.
    pub(crate) async fn greet(
        &self,
        text: &str,
        peer: Option<Peer>,
    ) -> Result<Arc<crate::TokenRecord>, Refusal> {
        let token = self.recognise(text, Scope::Read, peer).await?;
        // A session cannot create another session: the second would outlive the token that both derive from.
        if token.session_of.is_some() {
            return Err(Refusal::NoToken(Scope::Read));
        }
        self.pace(&token)?;
        Ok(token)
    }

    /// Takes one request from the rate limit of a token. A token and its sessions share one limit.
    fn pace(&self, token: &crate::TokenRecord) -> Result<(), Refusal> {
        let whose = token.session_of.as_ref().unwrap_or(&token.id);
        self.rates.as_ref().map_or(Ok(()), |rates| rates.take(whose, clock::now())).map_err(Refusal::TooFast)
    }

    /// Authenticates and authorizes a request. Pages accept a session as well as a token.
    async fn admit(
        &self,
        need: Need,
        headers: &HeaderMap,
        session: Option<&str>,
        peer: Option<Peer>,
    ) -> Result<Access, Refusal> {
        let (scope, narrowed) = match need {
            Need::Nothing => return Ok(Access::Nobody),
            _ if self.is_open => return Ok(Access::Loopback),
            Need::Offered => return Ok(self.welcome(headers, peer).await),
            Need::Scope { scope, narrowed } => (scope, narrowed),
        };
        let sent = bearer(headers);
        let Some(text) = sent.or(session) else {
            metrics::unauthenticated("missing");
            return Err(Refusal::NoToken(scope));
        };
        let token = self.recognise(text, scope, peer).await?;
        // A session belongs to a browser's cookie and is valid for pages only.
        if sent.is_some() && token.session_of.is_some() {
            return Err(Refusal::NoToken(scope));
        }
        self.pace(&token)?;
        if token.scope < scope {
            return Err(Refusal::TooLittle(scope));
        }
        if token.namespace.is_some() && !narrowed {
            return Err(Refusal::OneNamespace(scope));
        }
        Ok(Access::Token(token))
    }

    /// Authenticates a caller on a route where a token is optional. An invalid token is ignored, and a slow lookup ends
    /// after [`WELCOME`].
    async fn welcome(&self, headers: &HeaderMap, peer: Option<Peer>) -> Access {
        let Some(text) = bearer(headers) else { return Access::Nobody };
        let recognised = tokio::time::timeout(WELCOME, self.recognise(text, Scope::Read, peer)).await;
        recognised.ok().and_then(Result::ok).map_or(Access::Nobody, Access::Token)
    }

    /// Returns the record of the presented token if the token is valid. If an address presents too many invalid tokens,
    /// the daemon refuses further unknown tokens from it for a while. It still accepts tokens that were valid recently,
    /// so that a client cannot lock out others behind the same address.
    async fn recognise(
        &self,
        text: &str,
        scope: Scope,
        peer: Option<Peer>,
    ) -> Result<Arc<crate::TokenRecord>, Refusal> {
        let from = peer.map_or(IpAddr::from([0; 16]), |Peer(address)| network(address));
        let throttled = |wait| {
            metrics::unauthenticated("throttled");
            Refusal::TooManyWrong(wait)
        };
        let wrong = || match self.wrong.take(&from, clock::now()) {
            Ok(()) => {
                metrics::unauthenticated("refused");
                Refusal::NoToken(scope)
            }
            Err(wait) => throttled(wait),
        };
        let presented = Presented::read(text).ok_or_else(wrong)?;
        let was_right = match self.known.remembered(&presented) {
            known::Memory::Fresh(token) => return Ok(token),
            known::Memory::Stale => true,
            known::Memory::Nothing => false,
        };
        if was_right {
            return self.known.look_up(&presented).await.map_err(Refusal::Unknown)?.ok_or_else(wrong);
        }
        // Serialized for each address: otherwise concurrent requests would all be looked up before the first failure is
        // counted.
        let _turn = self.turns.of(&from).lock().await;
        if let Some(wait) = self.wrong.wait(&from, clock::now()) {
            return Err(throttled(wait));
        }
        self.known.look_up(&presented).await.map_err(Refusal::Unknown)?.ok_or_else(wrong)
    }

    /// Appends an event to the audit log.
    async fn write_down(&self, deed: Deed) {
        if let Err(error) = self.keep.note(&deed).await {
            let (who, action, object) = (&deed.who, &deed.action, &deed.object);
            tracing::error!(%error, who, action, object, "done, and missing in the audit log");
        }
    }
}

/// Middleware that authenticates every request and writes the actions of operators to the audit log.
pub(crate) async fn ask(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let need = api::need_of(&method, route.as_ref().map(MatchedPath::as_str));
    let peer = request.extensions().get::<Peer>().copied();
    // An unknown path also accepts the session: a user who is logged in gets 404 instead of the login page.
    let is_page = route.as_ref().is_none_or(|route| api::is_page(route.as_str()));
    let session = is_page.then(|| dashboard::cookie(request.headers())).flatten();
    let access = match door.admit(need, request.headers(), session, peer).await {
        Ok(access) => access,
        Err(refusal) => return refusal.into_response(),
    };
    let id = request.extensions().get::<RequestId>().map(|RequestId(id)| id.clone());
    request.extensions_mut().insert(access.clone());
    let is_admin = matches!(need, Need::Scope { scope: Scope::Admin, .. });
    if !is_admin || matches!(method, Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let act = async move {
        let mut response = next.run(request).await;
        let told = response.extensions_mut().remove::<Deed>();
        let is_change = (response.status().is_success() || response.status().is_redirection())
            && response.extensions_mut().remove::<NothingDone>().is_none();
        // The audit log also records an action that its handler did not describe.
        let plain = || Deed::new(format!("{method} {}", route.as_ref().map_or("", MatchedPath::as_str)), "");
        if let Some(deed) = told.or_else(|| is_change.then(plain)) {
            door.write_down(access.sign(deed, id)).await;
        }
        response
    };
    // The action runs to its end even if the client disconnects, so that no action is missing from the audit log.
    let acted = tokio::spawn(act.in_current_span()).await;
    acted.unwrap_or_else(|_| {
        Problem::new(Kind::Internal, "the log says more, under this request's id").into_response()
    })
}

/// Marks a response to an operator's request that changed nothing, such as a dry run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NothingDone;

/// Returns the token of the `Authorization: Bearer` header.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the unit of addresses that shares one limit: an IPv4 address, or the /64 of an IPv6 address, because one
/// client usually has a whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_is_one_peer() {
        let network = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn a_token_stands_after_its_scheme() {
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
