//! The environments of daemons, and the access to them.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use holdoff_testbed::CONDITION_TIMEOUT;
use serde_json::Value;
use tokio::runtime;
use tokio::sync::oneshot;

/// The environment in which daemons run.
pub(crate) trait Environment {
    /// Returns the access to the daemon with this number.
    fn access(&self, number: usize) -> DaemonAccess;

    /// Returns the address of its node for other nodes.
    fn node(&self, number: usize) -> String;
}

/// The access to run a command in the environment of a daemon, and the daemon's address there.
#[derive(Clone, Debug)]
pub(crate) struct DaemonAccess {
    /// The words before a command.
    pub(crate) before: Vec<String>,
    /// The HTTP address of the daemon.
    pub(crate) listen: String,
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) json: Value,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl DaemonAccess {
    pub(crate) fn command(&self, program: &str) -> Command {
        match self.before.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        }
    }

    /// Returns `holdoff ledger` on a directory, without a daemon.
    pub(crate) fn offline(&self, folder: &Path, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["ledger", "--json"]).args(words).current_dir(folder);
        command
    }

    /// Returns `holdoff ledger` with the daemon's URL and JSON output.
    pub(crate) fn json_command(&self, words: &[&str]) -> Command {
        let mut command = self.text_command(words);
        command.arg("--json");
        command
    }

    /// Returns `holdoff ledger` with the daemon's URL and human-readable output.
    pub(crate) fn text_command(&self, words: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["ledger", "--url", &format!("http://{}", self.listen)]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("NO_COLOR", "1");
        command
    }

    /// Runs a command against the daemon and returns its output.
    pub(crate) fn try_run(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(&self.json_command(words).output().unwrap())
    }

    /// Runs a command and asserts that it succeeds.
    pub(crate) fn run(&self, words: &[&str]) -> Value {
        let output = self.try_run(words);
        assert_eq!(output.code, 0, "{words:?}: {output:?}");
        output.json
    }

    /// Returns the status of the daemon's node, or null if it does not answer.
    pub(crate) fn status(&self) -> Value {
        self.try_run(&["status"]).json
    }
}

impl CommandOutput {
    pub(crate) fn of(output: &Output) -> Self {
        let [out, err] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let json = out.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        Self { code: output.status.code().unwrap_or(-1), json, out, err }
    }
}

/// A thread in the network of a daemon, which sends requests to the daemon for other threads.
pub(crate) struct Gateway {
    runtime: runtime::Handle,
    client: reqwest::Client,
    url: String,
    /// Ends the thread when it is dropped.
    _end: oneshot::Sender<()>,
}

/// The response to a request. A body that is not JSON is null.
pub(crate) enum Reply {
    Response(u16, Value),
    /// The daemon accepted no connection.
    NotSent,
    /// The daemon may have received the request.
    Lost,
}

impl Gateway {
    pub(crate) fn open(access: &DaemonAccess) -> Self {
        let (space, url) = (access.before.last().cloned(), format!("http://{}", access.listen));
        let (started, starts) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        thread::spawn(move || {
            if let Some(space) = space {
                enter(&space);
            }
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            started.send(runtime.handle().clone()).unwrap();
            // The sender sends nothing: its end is the signal.
            let _: Result<(), _> = runtime.block_on(ended);
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { runtime: starts.recv().unwrap(), client, url, _end: end }
    }

    /// Runs a future in the network of the daemon.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(future);
    }

    /// Sends a request with this body, or without one if it is null.
    pub(crate) fn send(&self, path: &str, body: &Value, timeout: Duration) -> Reply {
        let url = format!("{}{path}", self.url);
        let request = if body.is_null() { self.client.get(url) } else { self.client.post(url).json(body) };
        let request = request.timeout(timeout);
        let (replied, reply) = mpsc::channel();
        self.runtime.spawn(async move {
            let response = match request.send().await {
                Ok(response) => response,
                Err(error) => {
                    return replied.send(if error.is_connect() { Reply::NotSent } else { Reply::Lost });
                }
            };
            let status = response.status().as_u16();
            let reply =
                |body: Vec<u8>| Reply::Response(status, serde_json::from_slice(&body).unwrap_or_default());
            replied.send(response.bytes().await.map_or(Reply::Lost, |body| reply(body.into())))
        });
        reply.recv().unwrap()
    }
}

/// Moves this thread into a network namespace.
#[cfg(target_os = "linux")]
fn enter(space: &str) {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::os::fd::AsFd;

    let space = std::fs::File::open(Path::new("/run/netns").join(space)).unwrap();
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

#[cfg(not(target_os = "linux"))]
fn enter(_: &str) {
    unreachable!("network namespaces exist on Linux only");
}

/// All daemons on loopback, with separate ports.
pub(crate) struct Loopback {
    ports: Vec<(u16, u16)>,
}

impl Loopback {
    pub(crate) fn new(count: usize) -> Self {
        let port = holdoff_testbed::free_port;
        Self { ports: (0..count).map(|_| (port(), port())).collect() }
    }
}

impl Environment for Loopback {
    fn access(&self, number: usize) -> DaemonAccess {
        DaemonAccess { before: Vec::new(), listen: format!("127.0.0.1:{}", self.ports[number].0) }
    }

    fn node(&self, number: usize) -> String {
        format!("127.0.0.1:{}", self.ports[number].1)
    }
}

/// Polls until `look` returns a value, or panics after the timeout.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + CONDITION_TIMEOUT;
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(seen) => assert!(Instant::now() < end, "timed out waiting: {what}, but {seen}"),
        }
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Network namespaces and the bridges between them. Dropping the value removes them.
pub(crate) struct Namespaces {
    name: String,
    net: u32,
    count: usize,
}

impl Namespaces {
    /// Creates this number of namespaces, if the user has the permission.
    pub(crate) fn create(count: usize) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (id, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // From here on, dropping `made` removes everything created so far.
        let made = Self { name: format!("hl{}{number}", id % 100_000), net: (id * 8 + number) % 250, count };
        let Self { name, net, .. } = &made;
        for side in ["", "x"] {
            ip(&format!("link add {name}{side} type bridge"))?;
            ip(&format!("link set {name}{side} up"))?;
        }
        ip(&format!("addr add {}/24 dev {name}", made.host()))?;
        for number in 0..count {
            let (space, host) = (made.space(number), number + 1);
            ip(&format!("netns add {space}"))?;
            ip(&format!("link add {space} type veth peer name eth0 netns {space}"))?;
            ip(&format!("link set {space} master {name} up"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {space} addr add 10.214.{net}.{host}/24 dev eth0"))?;
            ip(&format!("-n {space} link set eth0 up"))?;
        }
        Ok(made)
    }

    /// Partitions the network: these daemons on one side, all others on the other side.
    pub(crate) fn partition(&self, numbers: &[usize]) {
        self.plug(numbers, "x");
    }

    /// Drops all packets from one daemon to another. Packets in the other direction still arrive.
    pub(crate) fn cut(&self, from: usize, to: usize) {
        // No interface has this hardware address.
        let nowhere = format!("10.214.{}.{} lladdr 02:00:00:00:00:01", self.net, to + 1);
        ip(&format!("-n {} neigh replace {nowhere} dev eth0 nud permanent", self.space(from))).unwrap();
    }

    /// Returns the address of this process in the daemons' network.
    pub(crate) fn host(&self) -> String {
        format!("10.214.{}.254", self.net)
    }

    /// Drops all packets between a daemon and this process.
    pub(crate) fn cut_host(&self, number: usize) {
        let nowhere = "lladdr 02:00:00:00:00:01 nud permanent";
        ip(&format!("-n {} neigh replace {} {nowhere} dev eth0", self.space(number), self.host())).unwrap();
        let daemon = format!("10.214.{}.{}", self.net, number + 1);
        ip(&format!("neigh replace {daemon} {nowhere} dev {}", self.name)).unwrap();
    }

    /// Heals the partition and all cuts.
    pub(crate) fn heal(&self) {
        ip(&format!("neigh flush dev {} nud permanent", self.name)).unwrap();
        let all: Vec<_> = (0..self.count).collect();
        self.plug(&all, "");
        for number in all {
            ip(&format!("-n {} neigh flush dev eth0 nud permanent", self.space(number))).unwrap();
        }
    }

    fn plug(&self, numbers: &[usize], side: &str) {
        for number in numbers {
            ip(&format!("link set {} master {}{side}", self.space(*number), self.name)).unwrap();
        }
    }

    fn space(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }
}

impl Environment for Namespaces {
    fn access(&self, number: usize) -> DaemonAccess {
        let before = ["ip", "netns", "exec", &self.space(number)].map(str::to_owned);
        DaemonAccess { before: before.to_vec(), listen: "127.0.0.1:7070".to_owned() }
    }

    fn node(&self, number: usize) -> String {
        format!("10.214.{}.{}:4848", self.net, number + 1)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for number in 0..self.count {
            let _ = ip(&format!("link del {}", self.space(number)));
            let _ = ip(&format!("netns del {}", self.space(number)));
        }
        for side in ["", "x"] {
            let _ = ip(&format!("link del {}{side}", self.name));
        }
    }
}

fn ip(words: &str) -> Result<(), String> {
    let result =
        Command::new("ip").args(words.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    if result.status.success() {
        return Ok(());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&result.stderr).trim()))
}
