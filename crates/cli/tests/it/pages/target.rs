//! The target of the steps: a server whose paths select its failures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get};

/// A server that fails on purpose.
pub(crate) struct Target {
    url: String,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_open: AtomicBool,
    stored: Mutex<String>,
}

impl Target {
    pub(crate) async fn start() -> Self {
        let gate = Arc::new(Gate::default());
        let app = Router::new()
            .route("/gate", any(gated))
            .route("/revision", any(revision))
            .route("/slow", any(std::future::pending::<StatusCode>))
            .route("/echo/{status}", any(echo))
            .route("/answer/{status}", any(answer))
            .with_state(Arc::clone(&gate));
        Self { url: serve(app).await, gate }
    }

    /// Returns the URL of a path. `/gate` refuses until it is opened; `/revision` reports a conflict for every
    /// revision but 2; `/slow` never answers; `/answer/503` answers with that status; `/echo/400` does too and
    /// returns the request's body.
    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(crate) fn open(&self) {
        self.gate.is_open.store(true, Ordering::Relaxed);
    }

    /// Returns the last body that `/revision` accepted.
    pub(crate) fn stored(&self) -> String {
        self.gate.stored.lock().unwrap().clone()
    }
}

/// Serves a page from another origin, on its own port. Returns its URL.
pub(crate) async fn page(text: String) -> String {
    serve(Router::new().route("/", get(|| async { Html(text) }))).await
}

async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn gated(State(gate): State<Arc<Gate>>) -> Response {
    if gate.is_open.load(Ordering::Relaxed) {
        return "done".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, "closed for the night").into_response()
}

async fn revision(State(gate): State<Arc<Gate>>, body: String) -> Response {
    let sent: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
    if sent["revision"] != 2 {
        return (StatusCode::CONFLICT, "revision 2 is the current one").into_response();
    }
    *gate.stored.lock().unwrap() = body;
    "stored".into_response()
}

async fn answer(Path(status): Path<u16>) -> StatusCode {
    StatusCode::from_u16(status).unwrap()
}

async fn echo(Path(status): Path<u16>, body: String) -> Response {
    (StatusCode::from_u16(status).unwrap(), body).into_response()
}
