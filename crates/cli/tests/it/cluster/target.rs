//! The target of the steps: a table that refuses stale fencing tokens.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

/// The duration of an effect, long enough for a later grant to overtake it.
const WORK: Duration = Duration::from_millis(2);

/// A server that records every effect.
pub(crate) struct Target {
    pub(crate) url: String,
    table: Arc<Table>,
}

#[derive(Default)]
struct Table {
    rows: Mutex<HashMap<String, Row>>,
    calls: AtomicUsize,
    stale: AtomicUsize,
    is_closed: AtomicBool,
}

/// A step, by its idempotency key.
#[derive(Default)]
struct Row {
    highest: u64,
    /// Every fencing token that was presented.
    tokens: Vec<u64>,
    effects: usize,
    /// The fencing token of the request that took effect.
    done_by: u64,
    /// The number of repeated requests after a lost response.
    repeats: usize,
}

impl Target {
    pub(crate) async fn start() -> Self {
        let table = Arc::new(Table::default());
        let app = Router::new().fallback(effect).with_state(Arc::clone(&table));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/effects", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, table }
    }

    /// Sets whether the target answers 503 to every request.
    pub(crate) fn close(&self, is_closed: bool) {
        self.table.is_closed.store(is_closed, Ordering::Relaxed);
    }

    /// Returns the number of requests for this task's only step, one for each grant.
    pub(crate) fn calls_for(&self, task: &str) -> usize {
        self.table.rows.lock().unwrap().get(&format!("{task}/0")).map_or(0, |row| row.tokens.len())
    }

    /// Asserts that every step took effect exactly once. Returns a summary of the requests.
    pub(crate) fn assert_once(&self, tasks: &[String]) -> String {
        let rows = self.table.rows.lock().unwrap();
        for task in tasks {
            let row = rows.get(&format!("{task}/0")).unwrap_or_else(|| panic!("{task} had no effect"));
            assert_eq!(row.effects, 1, "{task}");
        }
        for (key, row) in rows.iter() {
            let mut tokens = row.tokens.clone();
            tokens.sort_unstable();
            tokens.dedup();
            assert_eq!(tokens.len(), row.tokens.len(), "{key}: a lease was given to two: {:?}", row.tokens);
            // Only a later grant, with a higher fencing token, may repeat a request that took effect.
            let later = row.tokens.iter().filter(|token| **token > row.done_by).count();
            assert!(row.repeats <= later, "{key}: {} repeats, {later} later grants", row.repeats);
        }
        let (calls, stale) =
            (self.table.calls.load(Ordering::Relaxed), self.table.stale.load(Ordering::Relaxed));
        let repeats: usize = rows.values().map(|row| row.repeats).sum();
        format!(
            "{} effects of {calls} calls, {stale} stale ones refused, {repeats} repeated under a higher token",
            rows.len()
        )
    }
}

async fn effect(State(table): State<Arc<Table>>, headers: HeaderMap) -> StatusCode {
    if table.is_closed.load(Ordering::Relaxed) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (key, token) = (text("idempotency-key"), text("holdoff-fencing-token").parse::<u64>().unwrap());
    table.calls.fetch_add(1, Ordering::Relaxed);
    {
        let mut rows = table.rows.lock().unwrap();
        let row = rows.entry(key.clone()).or_default();
        row.highest = row.highest.max(token);
        row.tokens.push(token);
    }
    tokio::time::sleep(WORK).await;
    let mut rows = table.rows.lock().unwrap();
    let row = rows.entry(key).or_default();
    if token < row.highest {
        table.stale.fetch_add(1, Ordering::Relaxed);
        return StatusCode::PRECONDITION_FAILED;
    }
    // A repeated request after a lost response has no second effect.
    if row.effects == 0 {
        (row.effects, row.done_by) = (1, token);
    } else {
        row.repeats += 1;
    }
    StatusCode::OK
}
