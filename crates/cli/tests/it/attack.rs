//! A daemon under attack: strangers and the token of one namespace do what they can, while a client of another namespace
//! works.
//!
//! Quiet and attacked phases alternate, so that other load on the machine affects both alike. The attackers stay on one
//! processor and leave the others free.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdoff_testbed::scaled;
use reqwest::{Client, StatusCode};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::process::Process;

/// The duration of a phase, longer than the daemon waits for a request and its body. A run has as many quiet phases as
/// attacked ones.
const PHASE: Duration = Duration::from_secs(40);
/// The pause of the well-behaved client between two requests.
const PAUSE: Duration = Duration::from_millis(20);
/// The attacks per second: each kind is far below the rate at which the machine itself would be exhausted.
const BAD_TOKENS: u64 = 30;
const NAMES: u64 = 20;
const HOSTILE_TEXTS: u64 = 10;
const LARGE_VALUES: u64 = 2;
/// The connections that are open at once.
const SLOW_BODIES: usize = 40;
const SLOW_LOGINS: usize = 20;
const SILENT: usize = 100;
/// The memory by which the daemon may grow from the end of the first attacked phase to the end of the run.
const MAX_GROWTH: u64 = 64 << 20;

/// The address, the tokens, and what the attackers count.
struct Setting {
    address: String,
    calm: String,
    loud: String,
    refused: AtomicU64,
    accepted: AtomicU64,
    /// The connections that the daemon has closed, by kind.
    closed: [AtomicU64; Open::ALL.len()],
}

impl Setting {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn count(&self, status: StatusCode) {
        let counter = if status.is_success() { &self.accepted } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_client_is_served_while_others_attack() {
    let phases = scaled("HOLDOFF_ATTACK_PHASES", 2, 16).max(2);
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
    command.args(["serve", "--data", "data", "--log", "error", "--listen", "127.0.0.1:0", "--require-token"]);
    create_token(folder.path(), "admin", &["--scope", "admin"]);
    let calm = create_token(folder.path(), "calm", &["--scope", "work", "--namespace", "calm"]);
    let loud = create_token(folder.path(), "loud", &["--scope", "work", "--namespace", "loud"]);
    let mut process = Process::start(command.current_dir(folder.path()).env_remove("RUST_LOG"));
    let [greeting] = process.greeting();
    let address = greeting.split("http://").nth(1).expect(&greeting).trim_end_matches('/').to_owned();
    let none = || AtomicU64::new(0);
    let closed = std::array::from_fn(|_| none());
    let setting = Setting { address, calm, loud, refused: none(), accepted: none(), closed };
    let setting = Arc::new(setting);
    let (phase, attacks) = watch::channel(false);
    let attackers = std::thread::spawn({
        let setting = Arc::clone(&setting);
        move || attack(&setting, &attacks)
    });

    let (mut quiet, mut attacked, mut grown_from) = (Vec::new(), Vec::new(), None);
    for number in 0..phases {
        let under_attack = number % 2 == 1;
        phase.send(under_attack).unwrap();
        let latencies = runtime().block_on(work(&setting));
        let of_kind = if under_attack { &mut attacked } else { &mut quiet };
        of_kind.extend(latencies);
        if under_attack && grown_from.is_none() {
            grown_from = Some(process.memory());
        }
    }
    // The last value stays when the sender is gone.
    phase.send(false).unwrap();
    drop(phase);
    attackers.join().unwrap();

    let (from, to) = (grown_from.unwrap(), process.memory());
    let (before, during) = (percentile(&mut quiet, 99), percentile(&mut attacked, 99));
    let slowdown = during.as_secs_f64() / before.as_secs_f64();
    let (refused, accepted) = (count(&setting.refused), count(&setting.accepted));
    let closed = Open::ALL.map(|open| count(&setting.closed[open as usize]));
    println!(
        "{} requests: p99 {before:?} when quiet, {during:?} under attack ({slowdown:.2} times); attacks: {accepted} accepted, \
         {refused} refused, {closed:?} connections closed; memory {} to {} MiB",
        quiet.len() + attacked.len(),
        from >> 20,
        to >> 20
    );
    assert!(refused > 0 && closed.iter().all(|closed| *closed > 0), "the attacks did not happen");
    assert!(to < from + MAX_GROWTH, "the memory grew from {from} to {to} bytes");
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn create_token(folder: &Path, name: &str, flags: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
    command.args(["token", "create", "--data", "data", "--name", name]).args(flags).current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn percentile(latencies: &mut [Duration], percent: usize) -> Duration {
    latencies.sort_unstable();
    latencies[(latencies.len() * percent / 100).min(latencies.len() - 1)]
}

/// Submits tasks and reads them for one phase. Every request must succeed. Returns the latencies.
async fn work(setting: &Setting) -> Vec<Duration> {
    let (client, end) = (Client::new(), Instant::now() + PHASE);
    let mut latencies = Vec::new();
    while Instant::now() < end {
        let body = json!({ "operation": "calm.work", "delay": "1h" });
        let submit = client.post(setting.url("/v1/tasks")).bearer_auth(&setting.calm).json(&body);
        let since = Instant::now();
        let answer = submit.send().await.unwrap();
        latencies.push(since.elapsed());
        assert_eq!(answer.status(), StatusCode::CREATED);
        let id = answer.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned();
        let read = client.get(setting.url(&format!("/v1/tasks/{id}"))).bearer_auth(&setting.calm);
        let since = Instant::now();
        let answer = read.send().await.unwrap();
        latencies.push(since.elapsed());
        assert_eq!(answer.status(), StatusCode::OK);
        // A connection whose answer was not read is not used again.
        assert!(!answer.bytes().await.unwrap().is_empty());
        tokio::time::sleep(PAUSE).await;
    }
    latencies
}

/// Attacks in every phase in which `attacks` is true, until its sender is dropped.
fn attack(setting: &Arc<Setting>, attacks: &watch::Receiver<bool>) {
    use_last_processor();
    runtime().block_on(async {
        let (mut parts, client) = (tokio::task::JoinSet::new(), Client::new());
        let mut begin = |kind: Kind| {
            parts.spawn(kind.run(Arc::clone(setting), client.clone(), attacks.clone()));
        };
        for (request, per_second) in [
            (Request::BadToken, BAD_TOKENS),
            (Request::Name, NAMES),
            (Request::HostileText, HOSTILE_TEXTS),
            (Request::LargeValue, LARGE_VALUES),
        ] {
            begin(Kind::Requests(request, per_second));
        }
        for (open, count) in [(Open::Body, SLOW_BODIES), (Open::Login, SLOW_LOGINS), (Open::Silent, SILENT)] {
            for _ in 0..count {
                begin(Kind::Connection(open));
            }
        }
        parts.join_all().await;
    });
}

fn use_last_processor() {
    let allowed = sched_getaffinity(None).unwrap();
    let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu)) else { return };
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one).unwrap();
}

#[derive(Clone, Copy)]
enum Kind {
    Requests(Request, u64),
    Connection(Open),
}

/// A request that an attacker repeats.
#[derive(Clone, Copy)]
enum Request {
    BadToken,
    /// A task whose operation and queue are new.
    Name,
    /// A task whose operation contains an escape sequence.
    HostileText,
    LargeValue,
}

/// A connection that an attacker keeps open.
#[derive(Clone, Copy)]
enum Open {
    /// A request whose body arrives a byte a second.
    Body,
    /// The same, without a token.
    Login,
    /// Nothing is sent.
    Silent,
}

impl Kind {
    async fn run(self, setting: Arc<Setting>, client: Client, mut attacks: watch::Receiver<bool>) {
        for number in 0_u64.. {
            if attacks.wait_for(|attacks| *attacks).await.is_err() {
                return;
            }
            match self {
                Self::Requests(request, per_second) => {
                    request.send(&client, &setting, number).await;
                    tokio::time::sleep(Duration::from_secs(1) / u32::try_from(per_second).unwrap()).await;
                }
                Self::Connection(open) => {
                    let over = async { drop(attacks.wait_for(|attacks| !*attacks).await) };
                    tokio::select! {
                        () = over => {}
                        was_open = open.hold(&setting) => {
                            setting.closed[open as usize].fetch_add(u64::from(was_open), Ordering::Relaxed);
                            tokio::time::sleep(Duration::from_millis(500)).await;
                        }
                    }
                }
            }
        }
    }
}

impl Request {
    async fn send(self, client: &Client, setting: &Setting, number: u64) {
        let task = |body: Value| client.post(setting.url("/v1/tasks")).bearer_auth(&setting.loud).json(&body);
        let request = match self {
            Self::BadToken => client
                .get(setting.url("/v1/tasks"))
                .bearer_auth(format!("holdoff_{number:016x}_{number:064x}")),
            Self::Name => task(json!({
                "operation": format!("name.{number}"), "queue": format!("queue-{number}"), "delay": "1h"
            })),
            Self::HostileText => {
                task(json!({ "operation": format!("x\u{1b}]52;c;aGk=\u{7}{number}"), "delay": "1h" }))
            }
            Self::LargeValue => {
                task(json!({ "operation": "large", "payload": "x".repeat(200 << 10), "delay": "1h" }))
            }
        };
        // The daemon may close the connection before it has read everything.
        if let Ok(answer) = request.send().await {
            setting.count(answer.status());
            drop(answer.bytes().await);
        }
    }
}

impl Open {
    const ALL: [Self; 3] = [Self::Body, Self::Login, Self::Silent];

    /// Returns when the daemon closes the connection, and whether it was open at all.
    async fn hold(self, setting: &Setting) -> bool {
        let Ok(mut stream) = TcpStream::connect(&setting.address).await else { return false };
        let host = &setting.address;
        let head = match self {
            Self::Body => format!(
                "POST /v1/tasks HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\ncontent-type: \
                 application/json\r\ncontent-length: 100000\r\n\r\n",
                setting.loud
            ),
            Self::Login => format!(
                "POST /login HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\ncontent-type: \
                 application/x-www-form-urlencoded\r\ncontent-length: 4000\r\n\r\n"
            ),
            Self::Silent => String::new(),
        };
        let (mut receives, mut sends) = stream.split();
        let trickle = async {
            if head.is_empty() {
                return std::future::pending().await;
            }
            let mut sent = sends.write_all(head.as_bytes()).await;
            while sent.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
                sent = sends.write_all(b"x").await;
            }
        };
        let closed = async {
            let mut answer = [0; 1024];
            while receives.read(&mut answer).await.is_ok_and(|count| count > 0) {}
        };
        tokio::select! {
            () = trickle => {}
            () = closed => {}
        }
        true
    }
}
