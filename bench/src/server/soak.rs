//! Memory under sustained load: `cargo xtask soak server`.
//!
//! The daemon accepts tasks and executes them as requests to a server of this process, so that all its parts
//! work continuously. Memory is sampled ten times; after the caches have filled, it must not grow.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::load::Load;
use super::{Daemon, postgres};
use crate::row::{self, Row};

/// The default duration of the run for each store, and the variable that overrides it.
const SECONDS: u64 = 600;
const SECONDS_VARIABLE: &str = "HOLDOFF_SOAK_SECONDS";
const SAMPLES: u32 = 10;
const CONNECTIONS: usize = 16;
/// The largest ratio of the memory at the end to that in the middle, when caches and allocators have settled.
const BAR: f64 = 1.1;

/// Runs the soak test, if the arguments ask for it.
pub(crate) fn soak(arguments: &[String]) -> Option<ExitCode> {
    let ["soak", "server", ref only @ ..] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let rows = rows(only).unwrap_or_else(|why| {
        eprintln!("soak: not done, {why}");
        vec![Row::beside("memory of the daemon", "MiB", f64::NAN, ("", f64::NAN)).bar("measured", false)]
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
        rows.push(memory("SQLite", &format!("sqlite:{}", folder.path().join("work.db").display()), target)?);
    }
    if is_requested("postgres")
        && let Some(server) = postgres()
    {
        rows.push(memory("Postgres", &server.create_database("soak"), target)?);
    }
    Ok(rows)
}

fn memory(name: &str, store: &str, target: SocketAddr) -> Result<Row, String> {
    let configured = std::env::var(SECONDS_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    let interval = Duration::from_secs(configured.unwrap_or(SECONDS)) / SAMPLES;
    let daemon = Daemon::start(store)?;
    let (mut resident, mut errors) = (Vec::new(), 0);
    let task = format!(
        r#"{{"operation": "soak.call", "http": {{"url": "http://{target}/", "body": {{"order": 17}}}}}}"#
    );
    for _ in 0..SAMPLES {
        let load = Load::from_another_process(&daemon.address, CONNECTIONS, interval, &task)?;
        errors += load.errors;
        let mib = daemon.resident_mib();
        eprintln!("soak: {name}: {load}; {mib:.1} MiB");
        resident.push(mib);
    }
    let (Some(middle), Some(last)) = (resident.get(resident.len() / 2 - 1), resident.last()) else {
        return Err("too few samples".to_owned());
    };
    let row = Row::grown(&format!("{name}: memory of the daemon"), "MiB", *last, ("half-way", *middle));
    Ok(row.bar(&format!("≤ {BAR}, no error"), *last <= BAR * middle && errors == 0))
}

/// Starts a server that responds with 200 to every request, for the lifetime of this process.
fn target() -> std::io::Result<SocketAddr> {
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
    while let Ok(1..) = stream.read(&mut request).await {
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.is_err() {
            return;
        }
    }
}
