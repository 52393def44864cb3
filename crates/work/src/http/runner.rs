//! Runs HTTP steps.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Class, ClassMap};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use reqwest::Response;
use tracing::debug;

use super::client::{AddressRules, Clients, InvalidHttpSettings, NetworkAccess, SendError, system_resolver};
use super::credentials::{AccessToken, Credentials};
use super::gate::{DestinationHealth, Destinations};
use super::request::PreparedRequest;
use super::response::{self, FailedRequest, Unread};
use super::step::HttpStep;
use crate::store::StepOutput;
use crate::{Context, Fault, HttpSettings, Payload, Work, clock, metrics};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const ATTEMPT: HeaderName = HeaderName::from_static("holdoff-attempt");
const FENCING_TOKEN: HeaderName = HeaderName::from_static("holdoff-fencing-token");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Runs HTTP steps within the limits of their destinations.
///
/// The limits apply to one runner: create one per process and share it.
pub struct HttpRunner {
    classes: Classes,
    clients: Clients,
    reach: NetworkAccess,
    credentials: Credentials,
    destinations: Destinations,
    timeout: Duration,
    max_timeout: Duration,
    max_response: usize,
    max_output: usize,
}

/// The classification of failures.
enum Classes {
    Fixed(ClassMap),
    /// The classes of the active policies.
    Of(Work),
}

impl Classes {
    fn now(&self) -> ClassMap {
        match self {
            Self::Fixed(classes) => classes.clone(),
            Self::Of(work) => work.policies().classes().clone(),
        }
    }
}

impl HttpRunner {
    /// Creates a runner with these settings, which classifies failures by these classes.
    pub fn new(settings: &HttpSettings, classes: ClassMap) -> Result<Self, InvalidHttpSettings> {
        let reach = NetworkAccess {
            rules: Arc::new(AddressRules::new(settings)),
            max_redirects: settings.max_redirects,
            proxies: true,
            names: system_resolver,
        };
        Self::with_reach(settings, classes, reach)
    }

    /// Creates a runner that classifies failures by the active policies.
    pub(crate) fn of(work: &Work) -> Result<Self, InvalidHttpSettings> {
        let settings = &work.shared.settings;
        let runner = Self::new(&settings.http.with_notify_hosts(&settings.notify), ClassMap::default())?;
        Ok(Self { classes: Classes::Of(work.clone()), max_output: settings.max_output, ..runner })
    }

    pub(super) fn with_reach(
        settings: &HttpSettings,
        classes: ClassMap,
        reach: NetworkAccess,
    ) -> Result<Self, InvalidHttpSettings> {
        let clients = Clients::new(&reach)?;
        Ok(Self {
            classes: Classes::Fixed(classes),
            reach,
            credentials: Credentials::new(settings, &clients.trusted)?,
            clients,
            destinations: Destinations::new(settings),
            timeout: settings.timeout,
            max_timeout: settings.max_timeout,
            max_response: settings.max_response,
            max_output: usize::MAX,
        })
    }

    /// Returns the recently called destinations whose breakers are not closed.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.destinations.broken()
    }

    /// Sends the request that this payload describes, once. The output is `{"status":200,"body":…}`.
    ///
    /// Dropping the future closes the connection and releases everything that was reserved.
    pub async fn run(&self, cx: &Context, payload: &Payload) -> Result<Payload, Fault> {
        self.respond(cx, payload).await.map(|output| output.payload)
    }

    /// Sends the request like [`run`](Self::run), and says what is missing in the output.
    pub(crate) async fn respond(&self, cx: &Context, payload: &Payload) -> Result<StepOutput, Fault> {
        let request = read(payload)?.prepare().map_err(|wrong| Fault::permanent(wrong.to_string()))?;
        if !is_notification(cx) {
            let permitted = self.reach.rules.check_url(&request.url);
            permitted.map_err(|forbidden| Fault::permanent(forbidden.to_string()))?;
        }
        let token = match &request.credential {
            Some(name) => Some(self.credentials.token(name, &request.url).await?),
            None => None,
        };
        let gate = self.destinations.gate(&request.destination, &request.url)?;
        let pass = gate.try_enter(cx.attempt())?;
        let destination = request.destination.clone();
        let started = clock::now();
        let (answer, health) = match self.exchange(cx, request, token.as_ref()).await {
            Ok(output) => (Ok(output), DestinationHealth::Served),
            Err(missed) => (Err(missed.fault), missed.health),
        };
        pass.report(health);
        let took = clock::now().saturating_sub(started);
        metrics::http_took(took, &answer);
        let took_ms = took.as_millis();
        debug!(destination, attempt = cx.attempt(), took_ms, ok = answer.is_ok(), "sent an HTTP request");
        answer
    }

    /// Replaces the credential of this generation, which was rejected, once for all steps that used it.
    ///
    /// Cancel-safe: if the future is dropped during a refresh, the next waiting step refreshes.
    pub async fn refresh(&self, payload: &Payload, generation: u64) -> Result<(), Fault> {
        match read(payload)?.credential {
            Some(name) => self.credentials.refresh(&name, generation).await,
            None => Err(Fault::permanent("the step names no credential to refresh")),
        }
    }

    /// Sends one request and reads its response, both within the step's timeout.
    async fn exchange(
        &self,
        cx: &Context,
        request: PreparedRequest,
        token: Option<&AccessToken>,
    ) -> Result<StepOutput, FailedRequest> {
        let limit = request.timeout.unwrap_or(self.timeout).min(self.max_timeout);
        let destination = request.destination.clone();
        let expect = request.expect.clone();
        let secret = token.and_then(AccessToken::text);
        let started = clock::now();
        let late = |_| response::too_slow(&destination, limit, self.timeout);

        let sent = tokio::time::timeout(limit, self.send(cx, request, token)).await.map_err(late)?;
        let mut response = sent.map_err(|error| response::not_sent(&error, &destination))?;
        let status = response.status().as_u16();
        let took_ms = clock::now().saturating_sub(started).as_millis();
        debug!(destination, status, attempt = cx.attempt(), took_ms, "received an HTTP response");
        if !expect.iter().any(|statuses| statuses.contains(status)) {
            let mut missed = response::unexpected_status(response, &self.classes.now(), secret).await;
            missed.fault = with_generation(missed.fault, token);
            return Err(missed);
        }

        let limited = |error| FailedRequest { fault: error, health: DestinationHealth::Alive };
        let mut body = Vec::new();
        let announced = response.content_length();
        let reading = async {
            if response::exceeds(&response, self.max_response) {
                return Err(Unread::TooLong);
            }
            response::read(&mut response, self.max_response, &mut body).await
        };
        let left = limit.saturating_sub(clock::now().saturating_sub(started));
        match tokio::time::timeout(left, reading).await.map_err(late)? {
            Ok(()) => response::output(status, response.headers(), body, secret, self.max_output),
            Err(Unread::TooLong) => {
                let why = format!("exceeds http.max_response ({} bytes)", self.max_response);
                response::without_body(status, announced, &why)
            }
            Err(Unread::Interrupted(error)) => return Err(response::classify(&error, &destination)),
        }
        .map_err(limited)
    }

    /// Sends the request and follows its redirects. To another origin a redirect carries neither the credential nor the
    /// headers and the body of the step: they were written for the step's own destination.
    async fn send(
        &self,
        cx: &Context,
        request: PreparedRequest,
        token: Option<&AccessToken>,
    ) -> Result<Response, SendError> {
        let PreparedRequest { mut method, mut url, mut headers, mut body, expect, .. } = request;
        let wants_redirect = expect.iter().any(|statuses| statuses.has_redirect());
        add_own_headers(&mut headers, cx);
        if let Some(token) = token {
            headers.insert(token.name.clone(), token.header.clone());
        }
        let mut client = if is_notification(cx) { &self.clients.trusted } else { &self.clients.guarded };
        let mut followed = 0;
        loop {
            let call = client.request(method.clone(), url.clone()).headers(headers.clone());
            let response = body.iter().fold(call, |call, body| call.body(body.clone())).send().await?;
            let Some(location) =
                location(&response).filter(|_| !wants_redirect && self.reach.max_redirects > 0)
            else {
                return Ok(response);
            };
            let next = self.reach.redirect(&url, location, followed)?;
            followed += 1;
            // Another party chose the new URL.
            client = &self.clients.guarded;
            let is_get_from_now_on = match response.status() {
                StatusCode::SEE_OTHER => method != Method::HEAD,
                StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => method == Method::POST,
                _ => false,
            };
            if is_get_from_now_on {
                (method, body) = (Method::GET, None);
                headers.remove(CONTENT_TYPE);
            }
            if next.origin() != url.origin() {
                (headers, body) = (HeaderMap::new(), None);
                add_own_headers(&mut headers, cx);
            }
            url = next;
        }
    }
}

/// Returns the URL that a response redirects to, if it does.
fn location(response: &Response) -> Option<&str> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    response.headers().get(LOCATION).filter(|_| is_redirect).map(|to| to.to_str().unwrap_or_default())
}

/// Returns whether the step is a notification, whose URL is part of the settings.
fn is_notification(cx: &Context) -> bool {
    cx.lane().namespace == crate::notify::NAMESPACE
}

fn read(payload: &Payload) -> Result<HttpStep, Fault> {
    // The message contains only the position, because the text of the error may quote the payload.
    payload.read().map_err(|error| {
        let (line, column) = (error.line(), error.column());
        Fault::permanent(format!(
            "the payload is not a valid HTTP request: error at line {line}, column {column}"
        ))
    })
}

fn add_own_headers(headers: &mut HeaderMap, cx: &Context) {
    headers.insert(ATTEMPT, HeaderValue::from(cx.attempt()));
    headers.insert(FENCING_TOKEN, HeaderValue::from(cx.token()));
    if let Ok(key) = HeaderValue::try_from(cx.idempotency_key()) {
        headers.insert(IDEMPOTENCY_KEY, key);
    }
    // The trace comes from the submitter of the task; a value that cannot be sent is omitted.
    if let Some(trace) = cx.trace().and_then(|trace| HeaderValue::from_str(trace).ok()) {
        headers.insert(TRACEPARENT, trace);
    }
}

/// Adds the generation of a rejected token to the fault, so that the token is replaced once for all steps that used
/// it.
fn with_generation(fault: Fault, token: Option<&AccessToken>) -> Fault {
    let is_refused = fault.failure().is_some_and(|failure| failure.class() == Class::Unauthorized);
    match token {
        Some(token) if is_refused => fault.with_credential(token.generation),
        _ => fault,
    }
}

impl fmt::Debug for HttpRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRunner")
            .field("timeout", &self.timeout)
            .field("max_response", &self.max_response)
            .finish_non_exhaustive()
    }
}
