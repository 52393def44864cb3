//! A daemon under a steady load of tasks with keys: `cargo xtask soak server`.
//!
//! The daemon executes the tasks as requests to a server of this process, so that all its parts work continuously. Its
//! memory, its series of metrics and its tables are sampled: they must not grow. Keys and finished steps are kept for
//! seconds only, so that a table that is pruned more slowly than it fills shows within minutes.

use std::io::{Read, Write};
use std::net::{self, SocketAddr, TcpListener};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use sqlx::{Connection, PgConnection, SqliteConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::load::{KEY, Load};
use super::{Daemon, postgres};
use crate::row::{self, Row};

/// The default duration of the run for each store, and the variable that overrides it.
const SECONDS: u64 = 1200;
const SECONDS_VARIABLE: &str = "HOLDOFF_SOAK_SECONDS";
const SAMPLES: u32 = 20;
const CONNECTIONS: usize = 32;
const PER_SECOND: u32 = 1000;
/// The largest ratio of the greatest value in the second half to that in the first half.
const BAR: f64 = 1.25;
/// The least share of the rate that must be accepted.
const ACCEPTED: f64 = 0.95;
/// Keys and finished steps are kept for ten seconds, and pruned every 30 to 90 s.
const MOST_ROWS: f64 = (10.0 + 90.0 + 30.0) * PER_SECOND as f64;
const VARIABLES: &[(&str, &str)] =
    &[("HOLDOFF_WORK_HISTORY_KEEP", "10s"), ("HOLDOFF_WORK_DEDUP_RETENTION", "10s")];

/// Runs the soak test, if the arguments ask for it.
pub(crate) fn soak(arguments: &[String]) -> Option<ExitCode> {
    let ["soak", "server", ref only @ ..] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let rows = rows(only).unwrap_or_else(|why| {
        eprintln!("soak: not done, {why}");
        vec![Row::beside("tasks with keys accepted", "/s", f64::NAN, ("", f64::NAN)).bar("measured", false)]
    });
    row::print(&rows);
    Some(if rows.iter().all(|row| row.holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the rows of both stores, or of the named stores.
fn rows(only: &[&str]) -> Result<Vec<Row>, String> {
    let is_requested = |store: &str| only.is_empty() || only.contains(&store);
    let target = target().map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut rows = Vec::new();
    if is_requested("sqlite") {
        rows.extend(soak_store(
            "SQLite",
            &format!("sqlite:{}", folder.path().join("work.db").display()),
            target,
        )?);
    }
    if is_requested("postgres")
        && let Some(server) = postgres()
    {
        rows.extend(soak_store("Postgres", &server.create_database("soak"), target)?);
    }
    Ok(rows)
}

/// What must not grow.
const SAMPLED: [(&str, &str); 5] = [
    ("memory of the daemon", "MiB"),
    ("series of metrics", ""),
    ("keys", "rows"),
    ("finished steps", "rows"),
    ("tables", "MiB"),
];

fn soak_store(name: &str, store: &str, target: SocketAddr) -> Result<Vec<Row>, String> {
    let configured = std::env::var(SECONDS_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    let interval = Duration::from_secs(configured.unwrap_or(SECONDS)) / SAMPLES;
    let daemon = Daemon::start_with(store, "warn", Stdio::inherit(), VARIABLES)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let task = format!(
        r#"{{"operation": "soak.call", "dedup": "{KEY}", "http": {{"url": "http://{target}/", "body": {{"order": 17}}}}}}"#
    );
    let (mut samples, mut errors, mut accepted) = (Vec::new(), 0, f64::INFINITY);
    for _ in 0..SAMPLES {
        let load =
            Load::from_another_process(&daemon.address, CONNECTIONS, Some(PER_SECOND), interval, &task)?;
        (errors, accepted) = (errors + load.errors, load.per_second.min(accepted));
        let [keys, done, mib] = runtime.block_on(tables(store)).map_err(|error| error.to_string())?;
        let sample = [daemon.resident_mib(), series(&daemon.address)?, keys, done, mib];
        let shown: Vec<String> = SAMPLED
            .iter()
            .zip(sample)
            .map(|((what, unit), value)| format!("{what} {value:.0} {unit}"))
            .collect();
        eprintln!("soak: {name}: {load}; {}", shown.join(", "));
        samples.push(sample);
    }
    let (first, second) = samples.split_at(samples.len() / 2);
    let least = ACCEPTED * f64::from(PER_SECOND);
    let row = Row::beside(&format!("{name}: tasks with keys accepted"), "/s", accepted, ("", f64::NAN));
    let mut rows = vec![row.bar(&format!("≥ {least}, no error"), accepted >= least && errors == 0)];
    for (number, (what, unit)) in SAMPLED.into_iter().enumerate() {
        let most = |half: &[[f64; 5]]| {
            half.iter().filter_map(|sample| sample.get(number)).copied().fold(0.0, f64::max)
        };
        let (before, after) = (most(first), most(second));
        let row = Row::grown(&format!("{name}: {what}"), unit, after, ("first half", before));
        rows.push(match unit {
            "rows" => row.bar(&format!("≤ {MOST_ROWS}"), after.max(before) <= MOST_ROWS),
            _ => row.bar(&format!("≤ {BAR} × the first half"), after <= BAR * before),
        });
    }
    Ok(rows)
}

/// Returns the number of keys and of finished steps, and the size of all tables in MiB.
async fn tables(store: &str) -> Result<[f64; 3], sqlx::Error> {
    if store.starts_with("postgres") {
        let mut connection = PgConnection::connect(store).await?;
        let query = "select (select count(*) from holdoff.dedup)::float8, (select count(*) from holdoff.done)::float8,
            (select sum(pg_total_relation_size(oid)) / 1048576 from pg_class
                where relnamespace = 'holdoff'::regnamespace and relkind = 'r')::float8";
        let (keys, done, mib) = sqlx::query_as(query).fetch_one(&mut connection).await?;
        return Ok([keys, done, mib]);
    }
    let mut connection = SqliteConnection::connect(store).await?;
    let query =
        "select (select count(*) from holdoff_dedup) * 1.0, (select count(*) from holdoff_done) * 1.0,
        (p.page_count - f.freelist_count) * s.page_size / 1048576.0
        from pragma_page_count p, pragma_freelist_count f, pragma_page_size s";
    let (keys, done, mib) = sqlx::query_as(query).fetch_one(&mut connection).await?;
    Ok([keys, done, mib])
}

/// Returns the number of series that the daemon exports.
fn series(address: &str) -> Result<f64, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = net::TcpStream::connect(address).map_err(failed)?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let count = answer.lines().filter(|line| line.starts_with("holdoff_")).count();
    Ok(f64::from(u32::try_from(count).unwrap_or(u32::MAX)))
}

/// Starts a server that responds with 200, or with 503 to the first attempt of a step for `/fail-first`, for the lifetime of this process.
pub(super) fn target() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(respond_ok(stream));
            }
        });
    });
    Ok(address)
}

async fn respond_ok(mut stream: TcpStream) {
    let mut request = [0; 4096];
    // Over loopback a small request arrives in one piece.
    while let Ok(length @ 1..) = stream.read(&mut request).await {
        let text = String::from_utf8_lossy(request.get(..length).unwrap_or_default()).to_ascii_lowercase();
        let fails = text.starts_with("post /fail-first ") && text.contains("holdoff-attempt: 1\r\n");
        let status = if fails { "503 Unavailable" } else { "200 OK" };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}
