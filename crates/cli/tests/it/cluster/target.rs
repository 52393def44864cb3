//! What the steps have an effect on: a table that refuses whoever comes with a stale token.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

/// How long an effect takes: long enough to be overtaken in.
const WORK: Duration = Duration::from_millis(2);

/// A server whose every effect is written down.
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

/// One step, by its idempotency key.
#[derive(Default)]
struct Row {
    highest: u64,
    /// Every token that somebody came with.
    tokens: Vec<u64>,
    effects: usize,
    /// The token that had the effect.
    done_by: u64,
    /// How often it was done again, because an answer was lost.
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

    /// Whether it answers 503 to everybody.
    pub(crate) fn close(&self, is_closed: bool) {
        self.table.is_closed.store(is_closed, Ordering::Relaxed);
    }

    /// How often somebody came for this task's one step: once for every time it was granted.
    pub(crate) fn calls_for(&self, task: &str) -> usize {
        self.table.rows.lock().unwrap().get(&format!("{task}/0")).map_or(0, |row| row.tokens.len())
    }

    /// Every step had its effect, and had it once. Says how often it was tried.
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
            // Only who was granted it later, and came with a higher token, may do again what was done.
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
    // The same step again, after its answer was lost: what is done is done.
    if row.effects == 0 {
        (row.effects, row.done_by) = (1, token);
    } else {
        row.repeats += 1;
    }
    StatusCode::OK
}
