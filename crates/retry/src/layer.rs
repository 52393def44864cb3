//! A tower layer.

use std::any::type_name;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use holdoff_policy::{ClassMap, Failure};
use tower_layer::Layer;
use tower_service::Service;

use crate::call::{Attempts, Judge, Judged, NoHook, RetryCall};
use crate::retry::RetryBy;
use crate::{Retry, RetryError, TokioSleeper};

/// A tower layer that retries the requests of a service.
///
/// The judge inspects each result, response or error, and returns the failure, if there is one. The layer clones the request for
/// each attempt. With [`clone_request`](Self::clone_request), a request that cannot be cloned is passed on once.
///
/// The error of the service is a [`RetryError`], which keeps the error of the inner service.
///
/// ```
/// use holdoff_policy::{Failure, Policy};
/// use holdoff_retry::{Retry, RetryLayer};
/// use std::time::Duration;
/// use tower::{service_fn, Layer, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let retry = Retry::new(Policy::standard()).operation("stock.read").attempt_timeout(Duration::from_secs(2));
/// let layer = RetryLayer::new(retry, |result: &Result<u16, std::io::Error>| match result {
///     Ok(503) | Err(_) => Some(Failure::transient()),
///     Ok(_) => None,
/// });
/// let service = layer.layer(service_fn(|status: u16| async move { Ok::<_, std::io::Error>(status) }));
/// assert_eq!(service.oneshot(200).await.unwrap(), 200);
/// # }
/// ```
#[derive(Debug)]
pub struct RetryLayer<J, K = CloneRequest, S = TokioSleeper> {
    retry: Retry<S>,
    shared: Arc<(J, K)>,
}

impl<J, S> RetryLayer<J, CloneRequest, S> {
    /// Creates a layer that retries by this set-up the results in which this judge finds a failure.
    pub fn new(retry: impl Into<Retry<S>>, judge: J) -> Self {
        Self { retry: retry.into(), shared: Arc::new((judge, CloneRequest)) }
    }

    /// Sets the function that clones a request. A request for which it returns `None` is passed on once, as it is.
    ///
    /// ```
    /// # use holdoff_policy::{Failure, Policy};
    /// # use holdoff_retry::RetryLayer;
    /// # let judge = |_: &Result<(), std::io::Error>| Some(Failure::transient());
    /// /// A request with a body that may be a stream.
    /// struct Upload(Option<Vec<u8>>);
    ///
    /// let layer = RetryLayer::new(Policy::standard(), judge)
    ///     .clone_request(|upload: &Upload| Some(Upload(Some(upload.0.clone()?))));
    /// # drop(layer);
    /// ```
    pub fn clone_request<R, K: Fn(&R) -> Option<R>>(self, clone: K) -> RetryLayer<J, CloneBy<K>, S>
    where
        J: Clone,
    {
        let judge = self.shared.0.clone();
        RetryLayer { retry: self.retry, shared: Arc::new((judge, CloneBy(clone))) }
    }
}

/// Clones requests that implement [`Clone`].
#[derive(Clone, Copy, Debug)]
pub struct CloneRequest;

/// Clones requests by a function; created by [`RetryLayer::clone_request`].
#[derive(Clone, Copy, Debug)]
pub struct CloneBy<K>(K);

/// Clones requests.
pub trait TryClone<R> {
    /// Returns a clone; `None` if the request can be sent only once.
    fn try_clone(&self, request: &R) -> Option<R>;
}

impl<R: Clone> TryClone<R> for CloneRequest {
    fn try_clone(&self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}

impl<R, K: Fn(&R) -> Option<R>> TryClone<R> for CloneBy<K> {
    fn try_clone(&self, request: &R) -> Option<R> {
        (self.0)(request)
    }
}

impl<J, K, S: Clone> Clone for RetryLayer<J, K, S> {
    fn clone(&self) -> Self {
        Self { retry: self.retry.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<I, J, K, S: Clone> Layer<I> for RetryLayer<J, K, S> {
    type Service = RetryService<I, J, K, S>;

    fn layer(&self, inner: I) -> Self::Service {
        RetryService { inner, layer: self.clone() }
    }
}

/// A tower service that retries requests; created by [`RetryLayer`].
#[derive(Debug)]
pub struct RetryService<I, J, K = CloneRequest, S = TokioSleeper> {
    inner: I,
    layer: RetryLayer<J, K, S>,
}

impl<I: Clone, J, K, S: Clone> Clone for RetryService<I, J, K, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<I, J, K, S, R> Service<R> for RetryService<I, J, K, S>
where
    I: Service<R> + Clone,
    J: Fn(&Result<I::Response, I::Error>) -> Option<Failure>,
    K: TryClone<R>,
    Retry<S>: RetryBy + Clone,
{
    type Response = I::Response;
    type Error = RetryError<I::Error>;
    type Future = RetryResponse<I, J, K, S, R>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let ready = ready!(self.inner.poll_ready(context));
        Poll::Ready(ready.map_err(RetryError::before_any_attempt))
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The service that was polled ready serves the first attempt; its clone serves the next call.
        let clone = self.inner.clone();
        let ready = Some(std::mem::replace(&mut self.inner, clone.clone()));
        let shared = Arc::clone(&self.layer.shared);
        let requests = Requests { ready, clone, next: Some(request), shared: Arc::clone(&shared) };
        RetryResponse { call: RetryCall::new(self.layer.retry.clone(), requests, LayerJudge(shared)) }
    }
}

/// The attempts of one request.
struct Requests<I, J, K, R> {
    ready: Option<I>,
    clone: I,
    /// The request of the next attempt; `None` if it cannot be cloned.
    next: Option<R>,
    shared: Arc<(J, K)>,
}

impl<I: Service<R> + Clone, J, K: TryClone<R>, R> Attempts for Requests<I, J, K, R> {
    type Outcome = Result<I::Response, I::Error>;
    type Attempt = RequestAttempt<I, R>;

    fn attempt(&mut self) -> Self::Attempt {
        let request = self.next.take();
        self.next = request.as_ref().and_then(|request| self.shared.1.try_clone(request));
        match (self.ready.take(), request) {
            (Some(mut service), Some(request)) => RequestAttempt::Called { response: service.call(request) },
            (_, request) => RequestAttempt::Waiting { service: self.clone.clone(), request },
        }
    }

    fn can_repeat(&self, _: bool) -> bool {
        self.next.is_some()
    }
}

pin_project_lite::pin_project! {
    /// One attempt: waits until the service is ready, then calls it.
    #[project = AttemptProjection]
    enum RequestAttempt<I: Service<R>, R> {
        Waiting { service: I, request: Option<R> },
        Called { #[pin] response: I::Future },
    }
}

impl<I: Service<R>, R> Future for RequestAttempt<I, R> {
    type Output = Result<I::Response, I::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let response = match self.as_mut().project() {
                AttemptProjection::Called { response } => return response.poll(context),
                AttemptProjection::Waiting { service, request } => {
                    ready!(service.poll_ready(context))?;
                    // `can_repeat` prevents an attempt without a request.
                    let Some(request) = request.take() else { return Poll::Pending };
                    service.call(request)
                }
            };
            self.set(Self::Called { response });
        }
    }
}

/// The judge of the layer.
struct LayerJudge<J, K>(Arc<(J, K)>);

impl<T, E, J: Fn(&Result<T, E>) -> Option<Failure>, K> Judge<Result<T, E>> for LayerJudge<J, K> {
    fn failure(&mut self, outcome: &Result<T, E>, _: &ClassMap) -> Option<Failure> {
        (self.0.0)(outcome)
    }

    fn error_type() -> &'static str {
        type_name::<E>()
    }
}

pin_project_lite::pin_project! {
    /// The future of a [`RetryService`].
    ///
    /// Cancel-safe: dropping it drops the attempt in flight and returns an unused retry to the budget.
    pub struct RetryResponse<I, J, K, S, R>
    where
        I: Service<R>,
        I: Clone,
        K: TryClone<R>,
        Retry<S>: RetryBy,
    {
        #[pin]
        call: RetryCall<'static, Retry<S>, Requests<I, J, K, R>, LayerJudge<J, K>, NoHook, Judged>,
    }
}

impl<I, J, K, S, R> Future for RetryResponse<I, J, K, S, R>
where
    I: Service<R> + Clone,
    J: Fn(&Result<I::Response, I::Error>) -> Option<Failure>,
    K: TryClone<R>,
    Retry<S>: RetryBy,
{
    type Output = Result<I::Response, RetryError<I::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let report = ready!(self.project().call.poll(context));
        Poll::Ready(match report.outcome {
            Some(Ok(response)) => Ok(response),
            _ => Err(report.into_error()),
        })
    }
}
