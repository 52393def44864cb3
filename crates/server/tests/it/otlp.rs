//! Traces reach a collector.

use holdoff_testbed::CONDITION_TIMEOUT;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use holdoff_server::StoreUrl;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::support::{Daemon, Target, call};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// Starts a collector. Returns its address and the spans that it receives.
async fn collector() -> (String, Spans) {
    let (sender, inbox) = mpsc::unbounded_channel();
    let take = |State(sender): State<mpsc::UnboundedSender<Value>>, body: String| async move {
        let body: Value = serde_json::from_str(&body).unwrap();
        for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap() {
            let _ = sender.send(span.clone());
        }
        "{}"
    };
    let app = Router::new().route("/v1/traces", post(take)).with_state(sender);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, Spans { inbox, seen: Vec::new() })
}

/// The spans that the collector received, in any order.
struct Spans {
    inbox: mpsc::UnboundedReceiver<Value>,
    seen: Vec<Value>,
}

impl Spans {
    /// Returns a span that meets the condition, received before or later.
    async fn find(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            if let Some(span) = self.seen.iter().find(|span| is_it(span)) {
                return span.clone();
            }
            let next = tokio::time::timeout(CONDITION_TIMEOUT, self.inbox.recv()).await;
            self.seen.push(
                next.unwrap_or_else(|_| panic!("timed out waiting for a span; received: {:?}", self.seen))
                    .unwrap(),
            );
        }
    }
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a str {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.and_then(|attribute| attribute["value"]["stringValue"].as_str()).unwrap_or_default()
}

#[tokio::test]
async fn a_request_and_its_step_continue_the_callers_trace() {
    let (url, mut spans) = collector().await;
    let (traces, sending) = holdoff_server::otlp::new_pipeline(&url).unwrap();
    // The daemon's tasks run on this thread.
    let _tracing = tracing_subscriber::registry().with(traces).set_default();
    let stopping = CancellationToken::new();
    let sent = tokio::spawn(sending.run(stopping.clone()));

    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let target = Target::start(&[]).await;
    let task = call("order.confirm", &target.url);
    let request = daemon.client.post(format!("{}/v1/tasks", daemon.url)).json(&task);
    let answer = request.header("traceparent", format!("00-{TRACE}-{PARENT}-01")).send().await.unwrap();
    assert_eq!(answer.status(), 201);

    let request = spans.find(|span| attribute(span, "route") == "/v1/tasks").await;
    assert_eq!((request["name"].as_str(), request["kind"].as_u64()), (Some("request"), Some(2)));
    assert_eq!(request["traceId"], TRACE);
    assert_eq!(request["parentSpanId"], PARENT);
    let nanos = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
    assert!(nanos(&request, "endTimeUnixNano") >= nanos(&request, "startTimeUnixNano"));

    let step = spans.find(|span| span["name"] == "step").await;
    assert_eq!((step["traceId"].as_str(), attribute(&step, "operation")), (Some(TRACE), "order.confirm"));
    assert!(!step.to_string().contains("1.5"), "a span contains no payload");

    // The remaining spans are sent before the end.
    daemon.get("/healthz").await;
    stopping.cancel();
    sent.await.unwrap();
    spans.find(|span| attribute(span, "route") == "/healthz").await;
}

#[test]
fn an_invalid_endpoint_is_rejected() {
    assert!(holdoff_server::otlp::new_pipeline("not an address").is_err());
}
