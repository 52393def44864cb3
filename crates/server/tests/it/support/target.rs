//! A small HTTP server with scripted responses.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use tokio::sync::Notify;

/// A small HTTP server that counts its calls.
pub(crate) struct Target {
    pub(crate) url: String,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The remaining responses; after them 200.
    answers: Mutex<Vec<u16>>,
    calls: Mutex<Vec<(HeaderMap, String)>>,
    called: Notify,
}

impl Target {
    /// Starts a server that responds with these statuses, then always with 200. At `/slow` it never responds.
    pub(crate) async fn start(answers: &[u16]) -> Self {
        let seen = Arc::new(Seen::default());
        seen.answers.lock().unwrap().extend(answers.iter().rev());
        let app = Router::new().fallback(answer).with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/orders", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, seen }
    }

    pub(crate) fn slow_url(&self) -> String {
        self.url.replace("/orders", "/slow")
    }

    /// Waits until the server has been called so many times.
    pub(crate) async fn called(&self, times: usize) {
        loop {
            let next = self.seen.called.notified();
            if self.calls().len() >= times {
                return;
            }
            next.await;
        }
    }

    pub(crate) fn calls(&self) -> Vec<(HeaderMap, String)> {
        self.seen.calls.lock().unwrap().clone()
    }
}

async fn answer(State(seen): State<Arc<Seen>>, request: Request) -> (StatusCode, &'static str) {
    let is_slow = request.uri().path() == "/slow";
    let headers = request.headers().clone();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    seen.calls.lock().unwrap().push((headers, String::from_utf8_lossy(&body).into_owned()));
    seen.called.notify_waiters();
    if is_slow {
        std::future::pending::<()>().await;
    }
    let status = seen.answers.lock().unwrap().pop().unwrap_or(200);
    (StatusCode::from_u16(status).unwrap(), "thank you")
}
