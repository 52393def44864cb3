//! A reqwest middleware.

use std::borrow::Cow;
use std::sync::Arc;

use holdoff_policy::{Budget, Class, ClassMap, Failure, Policy, PolicySet, Replay};
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Middleware, Next, Result};

use crate::classify::retry_after;
use crate::{Refresher, Retry, SharedBreaker};

/// A reqwest middleware that retries requests.
///
/// - A request that may already have had its effect is repeated only if that is safe: an idempotent method,
///   or an `Idempotency-Key` header.
/// - `Retry-After` is accepted in both forms.
/// - A streaming body is never buffered: such a request is sent once.
/// - If there is no further attempt, the middleware returns the last response or error unchanged.
///
/// ```
/// use holdoff_policy::Policy;
/// use holdoff_retry::RetryMiddleware;
///
/// let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
///     .with(RetryMiddleware::new(Policy::standard()))
///     .build();
/// # drop(client);
/// ```
#[derive(Clone, Debug)]
pub struct RetryMiddleware {
    policies: Policies,
    budget: Option<Arc<Budget>>,
    breaker: Option<Arc<SharedBreaker>>,
    refresher: Option<Arc<Refresher>>,
}

#[derive(Clone, Debug)]
enum Policies {
    One(Arc<Policy>),
    Set(Arc<PolicySet>, String),
}

/// Names a request's operation. Insert it into the request's extensions.
///
/// ```
/// # fn send(client: &reqwest_middleware::ClientWithMiddleware) {
/// use holdoff_retry::OperationName;
///
/// let request = client.get("http://127.0.0.1/user").with_extension(OperationName("user.read".into()));
/// # drop(request); }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationName(pub Cow<'static, str>);

impl RetryMiddleware {
    /// Creates a middleware that retries every request by this policy.
    pub fn new(policy: impl Into<Arc<Policy>>) -> Self {
        Self { policies: Policies::One(policy.into()), budget: None, breaker: None, refresher: None }
    }

    /// Creates a middleware that retries each request by the set's policy for its [`OperationName`].
    pub fn from_set(set: Arc<PolicySet>, namespace: impl Into<String>) -> Self {
        let policies = Policies::Set(set, namespace.into());
        Self { policies, budget: None, breaker: None, refresher: None }
    }

    /// Sets the shared retry budget.
    #[must_use]
    pub fn budget(mut self, budget: Arc<Budget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Sets the shared breaker; while it is open, requests fail without being sent.
    #[must_use]
    pub fn breaker(mut self, breaker: Arc<SharedBreaker>) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Refreshes the credentials when the server first refuses them. The middleware that adds them to the
    /// request must come after this one.
    #[must_use]
    pub fn refresh(mut self, refresher: Arc<Refresher>) -> Self {
        self.refresher = Some(refresher);
        self
    }

    fn policy(&self, operation: &str) -> &Policy {
        match &self.policies {
            Policies::One(policy) => policy,
            Policies::Set(set, namespace) => set.policy_for(namespace, operation).1,
        }
    }

    fn classes(&self) -> Option<&ClassMap> {
        match &self.policies {
            Policies::One(_) => None,
            Policies::Set(set, _) => Some(set.classes()),
        }
    }
}

/// Classifies a result. The class describes the server's health; whether the request may be repeated is a
/// separate property of the failure.
fn judge(result: &Result<Response>, classes: &ClassMap, replay: Replay) -> Option<Failure> {
    match result {
        Ok(response) => {
            let status = response.status().as_u16();
            let class = classes.http(status, replay)?;
            let health = classes.http(status, Replay::Safe)?;
            let failure = Failure::new(health);
            let failure = if class == health { failure } else { failure.not_repeatable() };
            let asked = retry_after(response.headers());
            Some(asked.map_or(failure, |wait| failure.with_retry_after(wait)))
        }
        Err(Error::Reqwest(error)) => Some(failure_of(error, replay)),
        // Another middleware failed before the request was sent.
        Err(Error::Middleware(_)) => Some(Failure::permanent().local()),
    }
}

/// The error for a body that could be cloned before but no longer can.
fn unrepeatable() -> std::io::Error {
    std::io::Error::other("the body of the request cannot be cloned for another attempt")
}

fn failure_of(error: &reqwest::Error, replay: Replay) -> Failure {
    if error.is_builder() {
        return Failure::permanent().local();
    }
    if error.is_redirect() || error.is_decode() {
        return Failure::permanent();
    }
    let class = if error.is_timeout() { Class::Timeout } else { Class::Transient };
    // Without a connection no request was sent, so it had no effect.
    let may_repeat = replay == Replay::Safe || error.is_connect();
    if may_repeat { Failure::new(class) } else { Failure::new(class).not_repeatable() }
}

#[async_trait::async_trait]
impl Middleware for RetryMiddleware {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let built_in = ClassMap::new();
        let classes = self.classes().unwrap_or(&built_in);
        let replay = Replay::of(request.method().as_str(), request.headers().contains_key("idempotency-key"));
        let name = extensions.get::<OperationName>().cloned();
        let operation = name.as_ref().map(|name| name.0.as_ref());
        let policy = self.policy(operation.unwrap_or_default());
        // A stream can be sent only once, but the breaker and the metrics record it like any other request.
        let can_clone = request.try_clone().is_some();
        let once = if can_clone { None } else { policy.to_builder().attempts(1).build().ok() };
        let mut retry = Retry::new(once.as_ref().unwrap_or(policy));
        retry.options.operation = operation;
        retry.options.budget = self.budget.as_deref();
        retry.options.breaker = self.breaker.as_deref();
        retry.refresher = self.refresher.as_deref();
        let (original, mut request) = (extensions.clone(), Some(request));
        let attempt = || {
            let copy = if can_clone { request.as_ref().and_then(Request::try_clone) } else { request.take() };
            let (next, mut extensions) = (next.clone(), original.clone());
            async move {
                match copy {
                    Some(request) => (next.run(request, &mut extensions).await, extensions),
                    None => (Err(Error::middleware(unrepeatable())), extensions),
                }
            }
        };
        let error_type = std::any::type_name::<Error>();
        let judge = |(result, _): &(Result<Response>, Extensions)| judge(result, classes, replay);
        let ended = retry.run_judged_as(error_type, attempt, judge).await;
        let (result, last) = ended.into_outcome().map_err(Error::middleware)?;
        *extensions = last;
        result
    }
}
