//! The pages of the daemon over the same million steps: every page, every filter, every pair of filters. The
//! time is from the first byte of the request to the last byte of the response, over one connection.

use holdoff_work::StepId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::QueryTimes;
use crate::measure::now;
use crate::server::Daemon;

/// The limit of every page's 95th percentile, in milliseconds.
pub(super) const BAR: f64 = 150.0;

/// The number of requests for every page, and for every filter.
const ROUNDS: usize = 20;
const FILTER_ROUNDS: usize = 3;

/// Pages that are requested without further parameters.
const PAGES: [&str; 15] = [
    "/",
    "/?window=24h",
    "/tasks",
    "/tasks?state=failed",
    "/steps",
    "/failed",
    "/conflicts",
    "/queues",
    "/signals",
    "/locks",
    "/policies",
    "/policies/standard",
    "/nodes",
    "/audit",
    "/settings",
];

/// Filters with many, few and no matches: the property, and the query parameter.
const FILTERS: [(&str, &str); 27] = [
    ("state", "state=ready"),
    ("state", "state=running"),
    ("state", "state=succeeded"),
    ("state", "state=failed"),
    ("state", "state=failed&state=conflicted"),
    ("operation", "operation=op.07"),
    ("operation", "operation=op.1*"),
    ("operation", "operation=rare"),
    ("operation", "operation=none*"),
    ("queue", "queue=queue-3"),
    ("queue", "queue=none"),
    ("namespace", "namespace=eu"),
    ("namespace", "namespace=none"),
    ("class", "class=timeout"),
    ("class", "class=throttled"),
    ("failures", "min_failures=1"),
    ("failures", "min_failures=12"),
    ("failures", "min_failures=99"),
    ("destination", "destination=host-7.example"),
    ("destination", "destination=none.example"),
    ("older", "older_than=1h"),
    ("older", "older_than=9d"),
    ("newer", "newer_than=9d"),
    ("newer", "newer_than=1h"),
    ("text", "text=refused"),
    ("text", "text=needle"),
    ("text", "text=nowhere"),
];

/// Requests all pages from a daemon on this store.
pub(super) async fn measure_all(store: &str, some: StepId) -> Result<Vec<QueryTimes>, String> {
    let daemon = Daemon::start(store)?;
    let mut stream = TcpStream::connect(&daemon.address).await.map_err(|error| error.to_string())?;
    let _ = stream.set_nodelay(true);
    let mut client = PageClient { stream: &mut stream, address: &daemon.address };
    let mut pages: Vec<String> = PAGES.map(str::to_owned).into();
    pages.push(format!("/steps/{}/{}", some.task, some.number));
    pages.push(format!("/tasks/{}", some.task));
    // The first request after a start waits until all statistics have been counted once.
    let mut first = QueryTimes::new("pages: the first of all");
    first.add(client.time("/").await?, "/");
    let mut all = vec![first];
    for page in &pages {
        let mut times =
            QueryTimes::new(&format!("page {}", page.split(['?', '0']).next().unwrap_or_default()));
        for _ in 0..ROUNDS {
            times.add(client.time(page).await?, page);
        }
        all.push(times);
    }
    let [mut one, mut two] = ["pages: one filter", "pages: two filters"].map(QueryTimes::new);
    for _ in 0..FILTER_ROUNDS {
        for (_, filter) in FILTERS {
            let page = format!("/steps?{filter}");
            one.add(client.time(&page).await?, &page);
        }
    }
    for (index, (about, filter)) in FILTERS.iter().enumerate() {
        for (_, other) in FILTERS.iter().skip(index + 1).filter(|(other, _)| other != about) {
            let page = format!("/steps?{filter}&{other}");
            two.add(client.time(&page).await?, &page);
        }
    }
    all.extend([one, two]);
    Ok(all)
}

struct PageClient<'a> {
    stream: &'a mut TcpStream,
    address: &'a str,
}

impl PageClient<'_> {
    async fn time(&mut self, path: &str) -> Result<std::time::Duration, String> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\n\r\n", self.address);
        let start = now();
        self.stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = Vec::with_capacity(256 * 1024);
        loop {
            let read = self.stream.read_buf(&mut answer).await.map_err(|error| error.to_string())?;
            if read == 0 {
                return Err(format!("{path}: the daemon hung up"));
            }
            if crate::server::length(&answer).is_some_and(|whole| answer.len() >= whole) {
                break;
            }
        }
        let took = start.elapsed();
        if !answer.starts_with(b"HTTP/1.1 200") {
            let said = String::from_utf8_lossy(&answer);
            return Err(format!("{path}: {}", said.lines().next().unwrap_or_default()));
        }
        Ok(took)
    }
}
