//! A tower layer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use holdoff_policy::{Budget, Failure, Policy};
use tower_layer::Layer;
use tower_service::Service;

use crate::{Retry, SharedBreaker};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A tower layer that retries the requests of a service.
///
/// The judge inspects each result, response or error, and returns the failure, if there is one. The layer
/// clones the request for each attempt, so requests must be cheap to clone and safe to repeat.
///
/// ```
/// use holdoff_policy::{Failure, Policy};
/// use holdoff_retry::RetryLayer;
/// use tower::{service_fn, Layer, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let layer = RetryLayer::new(Policy::standard(), |result: &Result<u16, std::io::Error>| match result {
///     Ok(503) | Err(_) => Some(Failure::transient()),
///     Ok(_) => None,
/// });
/// let service = layer.layer(service_fn(|status: u16| async move { Ok::<_, std::io::Error>(status) }));
/// assert_eq!(service.oneshot(200).await.unwrap(), 200);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RetryLayer<J> {
    shared: Arc<Shared<J>>,
}

#[derive(Clone, Debug)]
struct Shared<J> {
    policy: Arc<Policy>,
    judge: J,
    operation: Option<String>,
    budget: Option<Arc<Budget>>,
    breaker: Option<Arc<SharedBreaker>>,
}

impl<J: Clone> RetryLayer<J> {
    /// Creates a layer that retries by this policy the results in which this judge finds a failure.
    pub fn new(policy: impl Into<Arc<Policy>>, judge: J) -> Self {
        let policy = policy.into();
        Self { shared: Arc::new(Shared { policy, judge, operation: None, budget: None, breaker: None }) }
    }

    /// Sets the operation's name for metrics and logs.
    #[must_use]
    pub fn operation(mut self, name: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.shared).operation = Some(name.into());
        self
    }

    /// Sets the shared retry budget.
    #[must_use]
    pub fn budget(mut self, budget: Arc<Budget>) -> Self {
        Arc::make_mut(&mut self.shared).budget = Some(budget);
        self
    }

    /// Sets the shared breaker; while it is open, requests fail with [`RetryError`](crate::RetryError) without being
    /// sent.
    #[must_use]
    pub fn breaker(mut self, breaker: Arc<SharedBreaker>) -> Self {
        Arc::make_mut(&mut self.shared).breaker = Some(breaker);
        self
    }
}

impl<S, J> Layer<S> for RetryLayer<J> {
    type Service = RetryService<S, J>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryService { inner, shared: Arc::clone(&self.shared) }
    }
}

/// A tower service that retries requests; created by [`RetryLayer`].
#[derive(Debug)]
pub struct RetryService<S, J> {
    inner: S,
    shared: Arc<Shared<J>>,
}

impl<S: Clone, J> Clone for RetryService<S, J> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S, J, Request> Service<Request> for RetryService<S, J>
where
    S: Service<Request> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Into<BoxError> + Send,
    Request: Clone + Send + 'static,
    J: Fn(&Result<S::Response, S::Error>) -> Option<Failure> + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The service that was polled ready serves the first attempt; its clone serves the next call.
        let clone = self.inner.clone();
        let mut ready = Some(std::mem::replace(&mut self.inner, clone.clone()));
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let mut retry = Retry::new(&shared.policy);
            retry.options.operation = shared.operation.as_deref();
            retry.options.budget = shared.budget.as_deref();
            retry.options.breaker = shared.breaker.as_deref();
            let attempt = move || once(ready.take(), clone.clone(), request.clone());
            let error_type = std::any::type_name::<S::Error>();
            let ended = retry.run_judged_as(error_type, attempt, &shared.judge).await;
            ended.into_outcome().map_err(BoxError::from)?.map_err(Into::into)
        })
    }
}

async fn once<S: Service<Request>, Request>(
    ready: Option<S>,
    clone: S,
    request: Request,
) -> Result<S::Response, S::Error> {
    if let Some(mut service) = ready {
        return service.call(request).await;
    }
    let mut service = clone;
    poll_fn(|context| service.poll_ready(context)).await?;
    service.call(request).await
}
