//! One daemon whose target fails or whose Postgres hangs. It loses no task, and continues soon after the fault has ended.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdoff_testbed::{Options, Postgres, free_port, skip};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::cluster::node::HOLDOFF;
use crate::ledger::environment::{DaemonAccess, Environment, Gateway, Namespaces, Reply, until};
use crate::process::Process;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(5);

/// A daemon, and a target in the same network.
struct Station {
    gateway: Gateway,
    _daemon: Process,
    target: Arc<Target>,
    url: String,
}

/// Counts the answered requests by path. Requests for `/hang` are not answered until the target is released.
#[derive(Default)]
struct Target {
    answered: Mutex<HashMap<String, usize>>,
    is_failing: Mutex<bool>,
    is_released: Mutex<bool>,
}

impl Station {
    /// Starts the daemon and its target. The target reports the begin and the end of every request that hangs.
    fn start(
        access: &DaemonAccess,
        store: &str,
        folder: &Path,
        config: &str,
    ) -> (Self, mpsc::UnboundedReceiver<Instant>) {
        std::fs::write(folder.join("holdoff.toml"), config).unwrap();
        let mut command = access.command(HOLDOFF);
        command.args(["serve", "--json", "--log", "warn", "--listen", &access.listen, "--store", store]);
        let mut daemon = Process::start(command.current_dir(folder).env_remove("RUST_LOG"));
        let [_] = daemon.greeting();
        let (gateway, target) = (Gateway::open(access), Arc::<Target>::default());
        let (events, seen) = mpsc::unbounded_channel();
        let (bound, address) = std::sync::mpsc::channel();
        let serving = Arc::clone(&target);
        gateway.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            bound.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&serving), events.clone()));
            }
        });
        let url = format!("http://{}", address.recv().unwrap());
        (Self { gateway, _daemon: daemon, target, url }, seen)
    }

    /// Submits a task that calls this path of the target. Returns its id, if the daemon accepted it.
    fn submit(&self, path: &str) -> Option<String> {
        let task = json!({ "operation": "order.confirm", "http": { "url": format!("{}{path}", self.url), "body": 1 } });
        match self.gateway.send("/v1/tasks", &task, 20 * SECOND) {
            Reply::Response(201, body) => Some(body["id"].as_str().unwrap().to_owned()),
            _ => None,
        }
    }

    fn is_ready(&self) -> bool {
        matches!(self.gateway.send("/readyz", &Value::Null, 3 * SECOND), Reply::Response(200, _))
    }

    fn all_succeed(&self, tasks: &[String]) {
        for task in tasks {
            until(&format!("task {task} succeeds"), || {
                match self.gateway.send(&format!("/v1/tasks/{task}"), &Value::Null, 20 * SECOND) {
                    Reply::Response(200, body) if body["state"] == "succeeded" => Ok(()),
                    Reply::Response(_, body) => Err(body.to_string()),
                    _ => Err("there is no answer".to_owned()),
                }
            });
        }
    }
}

async fn serve(mut stream: TcpStream, target: Arc<Target>, events: mpsc::UnboundedSender<Instant>) {
    let mut bytes = vec![0; 16_384];
    while let Ok(length @ 1..) = stream.read(&mut bytes).await {
        let request = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        if path == "/hang" && !*target.is_released.lock().unwrap() {
            let _ = events.send(Instant::now());
            // The daemon closes the connection when it cancels the request.
            while let Ok(1..) = stream.read(&mut bytes).await {}
            let _ = events.send(Instant::now());
            return;
        }
        let body = "x".repeat(if path == "/large" { 300 << 10 } else { 0 });
        let status = if *target.is_failing.lock().unwrap() { "503 Unavailable" } else { "200 OK" };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        *target.answered.lock().unwrap().entry(path).or_default() += 1;
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// On loopback, with any port.
fn here() -> DaemonAccess {
    DaemonAccess { before: Vec::new(), listen: format!("127.0.0.1:{}", free_port()) }
}

/// A small budget of retries: without a floor, the failures of the outage would use it up for good.
#[test]
fn steps_finish_soon_after_their_target_has_recovered() {
    let outage = if holdoff_testbed::is_deep() { 30 * SECOND } else { 5 * SECOND };
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("work.db").display());
    let config = "[http.destination]\nbudget = { ratio = 0.2, burst = 5 }";
    let (station, _events) = Station::start(&here(), &store, folder.path(), config);
    *station.target.is_failing.lock().unwrap() = true;
    let tasks: Vec<String> = (0..10).map(|_| station.submit("/fails").unwrap()).collect();
    std::thread::sleep(outage);
    *station.target.is_failing.lock().unwrap() = false;
    let healed = Instant::now();
    station.all_succeed(&tasks);
    let calls = station.target.answered.lock().unwrap()["/fails"];
    println!("ten steps: {calls} calls in an outage of {outage:?}, all done {:?} after it", healed.elapsed());
}

#[test]
fn a_step_with_a_large_answer_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("work.db").display());
    let (station, _events) = Station::start(&here(), &store, folder.path(), "");
    station.all_succeed(&[station.submit("/large").unwrap()]);
    assert_eq!(station.target.answered.lock().unwrap()["/large"], 1, "the effect happens once");
}

const SHORT: &str = r#"
[work]
lease = "5s"
poll = "100ms"
[policies.quick]
extends = "standard"
base = "50ms"
cap = "1s"
attempts = "unlimited"
[operations]
"*" = "quick"
"#;

/// Interrupts the store until the guard that `interrupt` returns is dropped.
fn check_interrupted_store<G>(
    what: &str,
    station: &Station,
    mut seen: mpsc::UnboundedReceiver<Instant>,
    interrupt: impl FnOnce() -> G,
) {
    let mut tasks: Vec<String> = (0..100).map(|_| station.submit("/before").unwrap()).collect();
    tasks.push(station.submit("/hang").unwrap());
    seen.blocking_recv().expect("the request is in flight");
    let (guard, since) = (interrupt(), Instant::now());
    let cancelled = seen.blocking_recv().unwrap().saturating_duration_since(since);
    *station.target.is_released.lock().unwrap() = true;
    // Tasks that arrive while the store hangs are refused, or accepted later.
    tasks.extend((0..3).filter_map(|_| station.submit("/during")));
    drop(guard);
    let healed = Instant::now();
    until("the daemon is ready again", || if station.is_ready() { Ok(()) } else { Err(String::new()) });
    let ready = healed.elapsed();
    tasks.push(station.submit("/after").expect("a ready daemon accepts tasks"));
    station.all_succeed(&tasks);
    println!(
        "{what}: cancelled after {cancelled:?}, ready {ready:?} after the end, all {} accepted tasks done after {:?}",
        tasks.len(),
        healed.elapsed()
    );
    let answered = station.target.answered.lock().unwrap();
    assert!(answered["/before"] >= 100 && answered["/hang"] >= 1 && answered["/after"] >= 1, "{answered:?}");
    // The bounds that docs/work.md promises.
    assert!(cancelled <= LEASE + SECOND, "{cancelled:?}");
    assert!(ready <= 5 * SECOND, "{ready:?}");
}

#[test]
fn a_request_is_cancelled_with_its_lease_while_postgres_is_suspended() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Postgres::start());
    let store = server.create_database("hung");
    let (station, seen) = Station::start(&here(), &store, folder.path(), SHORT);
    check_interrupted_store("suspended", &station, seen, || server.hang());
}

/// A cut network, which heals when this is dropped.
struct Cut<'a>(&'a Namespaces);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.heal();
    }
}

#[test]
fn a_request_is_cancelled_with_its_lease_while_the_network_drops_packets() {
    let network = match Namespaces::create(1) {
        Ok(network) => network,
        Err(why) => return skip(&format!("network namespaces cannot be made here ({why})")),
    };
    let settings = vec![("listen_addresses".to_owned(), format!("127.0.0.1,{}", network.host()))];
    let (folder, server) =
        (tempfile::tempdir().unwrap(), Postgres::start_with(&Options { fsync: false, settings }));
    server.psql(
        "postgres",
        "copy (select 'host all all 10.214.0.0/16 trust') to program 'cat >> pg_hba.conf'; select pg_reload_conf()",
    );
    let store = server.create_database("cut").replace("127.0.0.1", &network.host());
    let (station, seen) = Station::start(&network.access(0), &store, folder.path(), SHORT);
    check_interrupted_store("packets dropped", &station, seen, || {
        network.cut_host(0);
        Cut(&network)
    });
}
