//! Tasks at a constant rate, whatever happens to the daemons.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// The maximum number of concurrent requests.
const AT_ONCE: usize = 256;

/// The outcome of the requests.
#[derive(Default)]
pub(crate) struct Load {
    /// The accepted tasks, with status 201.
    pub(crate) accepted: Vec<String>,
    /// Requests without a response, because their daemon was killed.
    pub(crate) unanswered: usize,
    /// Responses with any other status.
    pub(crate) refused: Vec<String>,
    pub(crate) took: Duration,
}

pub(crate) fn task(target: &str) -> Value {
    json!({ "operation": "order.confirm", "http": { "url": target, "body": { "paid": true } } })
}

/// Sends this number of tasks at this rate. `whereto` selects the daemon for each task.
pub(crate) async fn send(
    count: usize,
    per_second: u32,
    target: &str,
    whereto: impl Fn(usize) -> String,
) -> Load {
    let (client, places) = (Client::new(), Arc::new(Semaphore::new(AT_ONCE)));
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
    let (began, mut sent) = (Instant::now(), Vec::with_capacity(count));
    for number in 0..count {
        ticks.tick().await;
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let request = client.post(format!("{}/v1/tasks", whereto(number))).json(&task(target));
        sent.push(tokio::spawn(async move {
            let answered = request.send().await;
            drop(place);
            let answer = answered.map_err(|_| None)?;
            let status = answer.status().as_u16();
            let body: Value = answer.json().await.map_err(|_| None)?;
            match status {
                201 => Ok(body["id"].as_str().unwrap().to_owned()),
                _ => Err(Some(format!("{status} {body}"))),
            }
        }));
    }
    let mut load = Load { took: began.elapsed(), ..Load::default() };
    for answer in sent {
        match answer.await.unwrap() {
            Ok(task) => load.accepted.push(task),
            Err(None) => load.unanswered += 1,
            Err(Some(said)) => load.refused.push(said),
        }
    }
    load
}

impl Load {
    pub(crate) fn said(&self) -> String {
        let sent = self.accepted.len() + self.unanswered + self.refused.len();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let rate = sent as f64 / self.took.as_secs_f64();
        format!(
            "{sent} requests at {rate:.0}/s: {} accepted, {} unanswered, {} refused",
            self.accepted.len(),
            self.unanswered,
            self.refused.len()
        )
    }
}
