//! The grace period: the daemon is not ready any more, but still serves requests.

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::middleware::Next;
use axum::response::Response;

use crate::app::App;

/// Middleware for the grace period: it serves requests and asks clients to close the connection. A load balancer routes
/// the next connection to another daemon.
pub(crate) async fn say_goodbye(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if app.retiring.is_cancelled() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
