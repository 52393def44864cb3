//! On the way out: not ready any more, but still answering.

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::middleware::Next;
use axum::response::Response;

use crate::app::App;

/// Whoever asks while the daemon is on its way out is answered, and told to come by another connection next time:
/// one that a balancer will lead elsewhere.
pub(crate) async fn say_goodbye(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if app.retiring.is_cancelled() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
