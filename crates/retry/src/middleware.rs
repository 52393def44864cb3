//! A reqwest middleware.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;

use holdoff_policy::{ClassMap, Classify, Failure, Replay};
use http::Extensions;
use http::header::{HeaderName, HeaderValue};
use reqwest::{Method, Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};
use tracing::Instrument;
use tracing::field::{Empty, display};

use crate::call::{Attempts, Judge, Judged, RetryCall};
use crate::{Retry, response_failure};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

type Strategy = dyn Fn(&Result<Response>, Option<Failure>) -> Option<Failure> + Send + Sync;

/// A reqwest middleware that retries requests.
///
/// - A request that may already have had its effect is repeated only if that is safe: an idempotent method, or an
///   `Idempotency-Key` header.
/// - `Retry-After` is accepted in both forms.
/// - A streaming body is never buffered: such a request is sent once.
/// - If there is no further attempt, the middleware returns the last response or error unchanged.
/// - Each attempt has a span of level `debug` with the fields of an OpenTelemetry client span, such as
///   `http.request.resend_count`.
///
/// A request may carry a [`Retry`] of its own in its extensions.
///
/// ```
/// use holdoff_policy::{Policy, PolicySet};
/// use holdoff_retry::{Retry, RetryMiddleware};
///
/// let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::new(Policy::standard()))
///     .build();
///
/// let set = PolicySet::from_toml("[operations]\n\"user.*\" = \"aggressive\"").unwrap();
/// let read_user = Retry::for_operation(&set, "default", "user.read"); // once, at the start
/// let request = client.get("http://127.0.0.1/user").with_extension(read_user.clone());
/// # drop(request);
/// ```
#[derive(Clone)]
pub struct RetryMiddleware {
    retry: Retry,
    strategy: Option<Arc<Strategy>>,
    generates_keys: bool,
}

impl std::fmt::Debug for RetryMiddleware {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RetryMiddleware").field("retry", &self.retry).finish_non_exhaustive()
    }
}

impl RetryMiddleware {
    /// Creates a middleware that retries every request by this set-up. If it has a refresher, the middleware that adds the
    /// credentials to a request must come after this one.
    pub fn new(retry: impl Into<Retry>) -> Self {
        Self { retry: retry.into(), strategy: None, generates_keys: false }
    }

    /// Sets the strategy of this client: a closure that receives a result and the failure that the middleware finds in it, and
    /// returns the failure that applies.
    ///
    /// ```
    /// use holdoff_policy::{Failure, Policy};
    /// use holdoff_retry::RetryMiddleware;
    ///
    /// // This server responds with 404 until the object is replicated.
    /// let middleware = RetryMiddleware::new(Policy::standard()).strategy(|result, failure| match result {
    ///     Ok(response) if response.status() == 404 => Some(Failure::transient()),
    ///     _ => failure,
    /// });
    /// # drop(middleware);
    /// ```
    #[must_use]
    pub fn strategy<F>(mut self, strategy: F) -> Self
    where
        F: Fn(&Result<Response>, Option<Failure>) -> Option<Failure> + Send + Sync + 'static,
    {
        self.strategy = Some(Arc::new(strategy));
        self
    }

    /// Adds an `Idempotency-Key` to every POST and PATCH without one, so that they can be repeated. For servers that honour it.
    #[must_use]
    pub fn generate_idempotency_keys(mut self) -> Self {
        self.generates_keys = true;
        self
    }
}

/// Returns a random key of 128 bits.
fn new_key() -> Option<HeaderValue> {
    // The standard library draws the keys of its hashers from the operating system.
    let [high, low] = [0_u8, 1].map(|half| RandomState::new().hash_one(half));
    HeaderValue::try_from(format!("{high:016x}{low:016x}")).ok()
}

/// The attempts of one request.
struct Requests<'a> {
    next: Next<'a>,
    extensions: Extensions,
    request: Option<Request>,
    replay: Replay,
    resends: u32,
}

type Sent = (Result<Response>, Extensions);

impl<'a> Attempts for Requests<'a> {
    type Outcome = Sent;
    type Attempt = Pin<Box<dyn Future<Output = Sent> + Send + 'a>>;

    fn attempt(&mut self) -> Self::Attempt {
        let request = self.request.take();
        self.request = request.as_ref().and_then(Request::try_clone);
        let (next, mut extensions) = (self.next.clone(), self.extensions.clone());
        let resends = self.resends;
        self.resends = resends.saturating_add(1);
        Box::pin(async move {
            // `can_repeat` prevents an attempt without a request.
            let Some(request) = request else {
                let error = std::io::Error::other("the request cannot be cloned for another attempt");
                return (Err(Error::middleware(error)), extensions);
            };
            let span = span(&request, resends);
            let result = next.run(request, &mut extensions).instrument(span.clone()).await;
            match &result {
                Ok(response) => span.record("http.response.status_code", response.status().as_u16()),
                Err(_) => span.record("error.type", std::any::type_name::<Error>()),
            };
            (result, extensions)
        })
    }

    fn can_repeat(&self, was_cut_off: bool) -> bool {
        self.request.is_some() && !(was_cut_off && self.replay == Replay::Unsafe)
    }
}

/// Returns the span of an attempt. It has no path, which may contain secrets.
fn span(request: &Request, resends: u32) -> tracing::Span {
    let span = tracing::debug_span!(
        "http.client.request",
        otel.kind = "client",
        http.request.method = %request.method(),
        server.address = request.url().host_str(),
        server.port = request.url().port_or_known_default(),
        http.request.resend_count = Empty,
        http.response.status_code = Empty,
        "error.type" = Empty,
    );
    if resends > 0 {
        span.record("http.request.resend_count", display(resends));
    }
    span
}

/// Classifies a result. The class describes the server's health; whether the request may be repeated is a separate property of the
/// failure.
struct ByResponse<'a> {
    replay: Replay,
    strategy: Option<&'a Strategy>,
}

impl Judge<Sent> for ByResponse<'_> {
    fn failure(&mut self, (result, _): &Sent, classes: &ClassMap) -> Option<Failure> {
        let failure = match result {
            Ok(response) => response_failure(response.status(), response.headers(), self.replay, classes),
            // Without a connection no request was sent, so it had no effect.
            Err(Error::Reqwest(error)) if self.replay == Replay::Unsafe && !error.is_connect() => {
                Some(error.classify(classes).not_repeatable())
            }
            Err(Error::Reqwest(error)) => Some(error.classify(classes)),
            // Another middleware failed before the request was sent.
            Err(Error::Middleware(_)) => Some(Failure::permanent().local()),
        };
        self.strategy.map_or(failure, |strategy| strategy(result, failure))
    }

    fn error_type() -> &'static str {
        std::any::type_name::<Error>()
    }
}

#[async_trait::async_trait]
impl Middleware for RetryMiddleware {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let takes_key = matches!(*request.method(), Method::POST | Method::PATCH);
        let has_key = request.headers().contains_key(IDEMPOTENCY_KEY);
        if let (true, Some(key)) = (self.generates_keys && takes_key && !has_key, new_key()) {
            request.headers_mut().insert(IDEMPOTENCY_KEY, key);
        }
        let has_key = request.headers().contains_key(IDEMPOTENCY_KEY);
        let replay = Replay::of(request.method().as_str(), has_key);
        let retry = extensions.get::<Retry>().unwrap_or(&self.retry).clone();
        let judge = ByResponse { replay, strategy: self.strategy.as_deref() };
        let requests =
            Requests { next, extensions: extensions.clone(), request: Some(request), replay, resends: 0 };
        let call: RetryCall<'_, _, _, _, _, Judged> = RetryCall::new(retry, requests, judge);
        let (result, last) = call.await.into_outcome().map_err(Error::middleware)?;
        *extensions = last;
        result
    }
}
