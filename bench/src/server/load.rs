//! Clients that keep their connections and send tasks one after the other.

use std::fmt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::measure::now;

/// The argument that makes this program act as the clients.
const PART: &str = "as-clients";
/// The part of a task that each request replaces by a number of its own.
pub(super) const KEY: &str = "KKKKKKKKKKKKKKKK";
/// Exceeds the size of a response.
const ANSWER: usize = 16 * 1024;

/// The result of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) per_second: f64,
    pub(super) median_ms: f64,
    pub(super) p99_ms: f64,
    /// Responses other than `201`, and broken connections.
    pub(super) errors: u64,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { per_second, median_ms, p99_ms, errors } = self;
        write!(f, "{per_second:.0}/s, median {median_ms:.1} ms, p99 {p99_ms:.1} ms, {errors} errors")
    }
}

impl Load {
    /// Sends tasks from another process: this many a second, or as many as the daemon accepts.
    pub(super) fn from_another_process(
        address: &str,
        connections: usize,
        per_second: Option<u32>,
        time: Duration,
        task: &str,
    ) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let (connections, rate) = (connections.to_string(), per_second.unwrap_or(0).to_string());
        let arguments = [PART, address, &connections, &rate, &time.as_millis().to_string(), task];
        let output = Command::new(this).args(arguments).output().map_err(|error| error.to_string())?;
        let said = || format!("the clients failed: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).map_err(|_| said())
    }
}

/// Acts as the clients, if this process was started for that.
pub(super) fn play(arguments: &[String]) -> Option<ExitCode> {
    let [part, address, connections, rate, millis, task] = arguments else { return None };
    if part != PART {
        return None;
    }
    let time = Duration::from_millis(millis.parse().unwrap_or(0));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (connections, rate) = (connections.parse().unwrap_or(0), rate.parse().unwrap_or(0));
    let load = runtime.map(|runtime| runtime.block_on(send_all(address, connections, rate, time, task)));
    Some(match load.map(|load| serde_json::to_string(&load)) {
        Ok(Ok(text)) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        _ => ExitCode::FAILURE,
    })
}

async fn send_all(address: &str, connections: u32, rate: u32, time: Duration, task: &str) -> Load {
    let length = task.len();
    let request = format!(
        "POST /v1/tasks HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{task}"
    );
    let request: Arc<str> = request.into();
    let end = now() + time;
    let start = now();
    let pause = (rate > 0).then(|| Duration::from_secs(connections.into()) / rate);
    let clients: Vec<_> = (0..connections)
        .map(|number| tokio::spawn(client(number, address.to_owned(), Arc::clone(&request), pause, end)))
        .collect();
    let (mut waits, mut errors) = (Vec::new(), 0);
    for client in clients {
        match client.await {
            Ok((own, broke)) => {
                waits.extend(own);
                errors += broke;
            }
            Err(_) => errors += 1,
        }
    }
    let took = start.elapsed().as_secs_f64();
    waits.sort_unstable();
    let at =
        |share: usize| waits.get(waits.len() * share / 100).map_or(f64::NAN, |wait| wait.as_secs_f64() * 1e3);
    let count = u32::try_from(waits.len()).unwrap_or(u32::MAX);
    Load { per_second: f64::from(count) / took, median_ms: at(50), p99_ms: at(99), errors }
}

/// Returns the duration of each response, and the number of errors.
async fn client(
    number: u32,
    address: String,
    request: Arc<str>,
    pause: Option<Duration>,
    end: Instant,
) -> (Vec<Duration>, u64) {
    let (mut waits, mut errors, mut sent) = (Vec::new(), 0, 0_u32);
    let mut ticks = pause.map(tokio::time::interval);
    let is_keyed = request.contains(KEY);
    let mut answer = vec![0; ANSWER];
    while now() < end {
        let Ok(mut stream) = TcpStream::connect(&address).await else {
            errors += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        while now() < end {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            sent += 1;
            // As long as the part that it replaces.
            let key = || format!("{:05}{number:03}{sent:08}", std::process::id() % 100_000);
            let keyed = is_keyed.then(|| request.replace(KEY, &key()));
            let start = now();
            match ask(&mut stream, keyed.as_deref().unwrap_or(&request).as_bytes(), &mut answer).await {
                Some(true) => waits.push(start.elapsed()),
                Some(false) => errors += 1,
                None => {
                    errors += 1;
                    break;
                }
            }
        }
    }
    (waits, errors)
}

/// Returns whether the task was accepted; `None` if the connection broke.
async fn ask(stream: &mut TcpStream, request: &[u8], buffer: &mut [u8]) -> Option<bool> {
    stream.write_all(request).await.ok()?;
    let mut filled = 0;
    loop {
        let read = stream.read(buffer.get_mut(filled..)?).await.ok().filter(|read| *read > 0)?;
        filled += read;
        let answer = buffer.get(..filled)?;
        if let Some(whole) = length(answer)
            && filled >= whole
        {
            return Some(answer.starts_with(b"HTTP/1.1 201"));
        }
    }
}

/// Returns the length of head and body, if the head is complete.
pub(crate) fn length(answer: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length: ";
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let lines = answer.get(..head)?;
    let at = lines.windows(NAME.len()).position(|name| name.eq_ignore_ascii_case(NAME))?;
    let digits = lines.get(at + NAME.len()..)?.iter().take_while(|byte| byte.is_ascii_digit());
    let body = digits.fold(0_usize, |number, digit| number * 10 + usize::from(digit - b'0'));
    Some(head + 4 + body)
}
