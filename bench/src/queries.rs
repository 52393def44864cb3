//! The response times over a million steps: every filter, every pair of filters, and all other queries of a
//! page. The steps are written by SQL, because submitting a million of them would take too long.

mod fill;
mod pages;
mod steps;

use std::time::Duration;

use holdoff_testbed::{Options, Postgres, postgres_binaries};

use crate::row::Row;
use crate::work;

/// The limit of a query's 95th percentile, in milliseconds.
const BAR: f64 = 100.0;

/// The durations of one kind of query, in milliseconds, and the description of the longest.
#[derive(Default)]
struct QueryTimes {
    name: String,
    took: Vec<f64>,
    worst: (f64, String),
}

impl QueryTimes {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn add(&mut self, took: Duration, about: &str) {
        let took = took.as_secs_f64() * 1e3;
        self.took.push(took);
        if took > self.worst.0 {
            self.worst = (took, about.to_owned());
        }
    }

    fn at(&self, share: usize) -> f64 {
        let mut times = self.took.clone();
        times.sort_by(f64::total_cmp);
        let rank = (times.len() * share).div_ceil(100).max(1);
        times.get(rank - 1).copied().unwrap_or(f64::NAN)
    }
}

pub(crate) fn rows() -> Vec<Row> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let measured = runtime.block_on(measure());
    measured.unwrap_or_else(|why| {
        eprintln!("queries: not measured, {why}");
        Vec::new()
    })
}

async fn measure() -> Result<Vec<Row>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("queries.db");
    let mut rows = store("SQLite", &format!("sqlite:{}", file.display())).await?;
    if postgres_binaries().is_some() {
        let settings = vec![("shared_buffers".to_owned(), "256MB".to_owned())];
        let server = Postgres::start_with(&Options { fsync: true, settings });
        rows.extend(store("Postgres", &server.create_database("queries")).await?);
    }
    Ok(rows)
}

async fn store(name: &str, url: &str) -> Result<Vec<Row>, String> {
    let work = work::open(url).await?;
    let half_way = fill::fill(url).await?;
    let asked = steps::measure_all(&work, half_way).await.map_err(|error| error.to_string())?;
    drop(work);
    let pages = pages::measure_all(url, half_way).await?;
    let (query_count, asked) = (asked.len(), asked.into_iter().chain(pages).collect::<Vec<_>>());
    println!("{:<34} {:>6} {:>9} {:>9} {:>9}  the longest", name, "runs", "p50", "p95", "max");
    for times in &asked {
        let QueryTimes { name, took: all, worst } = times;
        let (p50, p95) = (times.at(50), times.at(95));
        println!("{name:<34} {:>6} {p50:>6.1} ms {p95:>6.1} ms {:>6.1} ms  {}", all.len(), worst.0, worst.1);
    }
    let row = |(index, times): (usize, &QueryTimes)| {
        let (p50, p95) = (times.at(50), times.at(95));
        let row = Row::beside(&format!("{name}: {}", times.name), "ms", p95, ("median", p50));
        let row = Row { ratio: None, ..row };
        // An action reports the exact number of affected steps, however long that takes, so these queries
        // have no bar.
        let is_exact =
            ["stats, the first time", "affected", "act, nothing matches", "pages: the first of all"]
                .contains(&times.name.as_str());
        match index < query_count {
            _ if is_exact => row,
            true => row.bar("p95 ≤ 100", p95 <= BAR),
            false => row.bar("p95 ≤ 150", p95 <= pages::BAR),
        }
    };
    Ok(asked.iter().enumerate().map(row).collect())
}
