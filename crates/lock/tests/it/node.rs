//! A node in a process of its own that executes commands, its controlling side, and the protected resource.
//!
//! ```text
//! ACQUIRE key lease-ms wait-ms        granted TOKEN | failed REASON
//! WRITE what                          written | stale          with the token, even if the guard is invalid
//! VALID                               true | false
//! RELEASE                             released | lost | failed REASON
//! ROUNDS key count hold-ms lease-ms   done LONGEST-WAIT-US     acquires, enters, holds, leaves, releases
//! ```

pub(crate) mod cluster;

use std::process::Stdio;
use std::str::FromStr as _;
use std::time::Duration;

use holdoff_lock::{Error, FenceError, Guard, LockKey, Locks, Settings, Token, sqlite};
use holdoff_testbed::kubernetes::real_cluster;
use holdoff_testbed::{CONDITION_TIMEOUT, libfaketime};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

pub(crate) use cluster::Cluster;

/// The environment variables that configure a process.
const STORE: &str = "HOLDOFF_NODE_STORE";
const NAMESPACE: &str = "HOLDOFF_NODE_NAMESPACE";
const RESOURCE: &str = "HOLDOFF_NODE_RESOURCE";

/// The prefix of a response. All other output is not part of the protocol.
const RESPONSE_PREFIX: &str = "@ ";

/// Opens the store at a URL. `stand-in:URL` is the stand-in for Kubernetes, `cluster:` the real cluster, and `ledger:`
/// invites this process to be a node.
pub(crate) async fn open(store: &str, settings: Settings) -> Locks {
    let locks = if let Some(url) = store.strip_prefix("stand-in:") {
        let mut config = kube::Config::new(url.parse().unwrap());
        config.default_retry = false;
        Locks::kubernetes(kube::Client::try_from(config).unwrap(), "default")
    } else if store == "cluster:" {
        let (client, namespace) = real_cluster().await.unwrap();
        Locks::kubernetes(client, &namespace)
    } else if let Some(invitation) = store.strip_prefix("ledger:") {
        Locks::ledger(cluster::accept(invitation).await)
    } else {
        Locks::open(store).await.unwrap()
    };
    locks.with_settings(settings).unwrap()
}

#[test]
#[ignore = "other tests run it as a separate process"]
fn node_process() {
    run_if_asked();
}

/// Returns the name by which this binary runs `node_process`.
fn process_name() -> String {
    let (_, module) = module_path!().split_once("::").unwrap();
    format!("{module}::node_process")
}

/// Runs a node's process. Returns at once in a process that is not a node.
fn run_if_asked() {
    let [Ok(store), Ok(namespace), Ok(resource)] = [STORE, NAMESPACE, RESOURCE].map(std::env::var) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = open(&store, Settings::default().with_namespace(namespace)).await;
        let mut node = CommandNode { locks, resource: Resource::open(&resource).await, guard: None };
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        println!("{RESPONSE_PREFIX}ready");
        while let Some(line) = lines.next_line().await.unwrap() {
            println!("{RESPONSE_PREFIX}{}", node.execute(&line).await);
        }
    });
    std::process::exit(0);
}

struct CommandNode {
    locks: Locks,
    resource: Resource,
    guard: Option<Guard>,
}

impl CommandNode {
    async fn execute(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let millis = |word: &str| Duration::from_millis(word.parse().unwrap());
        match words[..] {
            ["ACQUIRE", key, lease, wait] => {
                let acquire = self.locks.acquire(key).lease(millis(lease)).wait(millis(wait));
                match acquire.await {
                    Ok(guard) => format!("granted {}", self.guard.insert(guard).token()),
                    Err(error) => format!("failed {error}"),
                }
            }
            ["WRITE", what] => {
                let guard = self.guard.as_ref().unwrap();
                match self.resource.write(guard.key(), guard.token(), what).await {
                    Write::Done => "written".to_owned(),
                    Write::Stale => "stale".to_owned(),
                }
            }
            ["VALID"] => self.guard.as_ref().unwrap().is_valid().to_string(),
            ["RELEASE"] => match self.guard.take().unwrap().release().await {
                Ok(()) => "released".to_owned(),
                Err(Error::Lost { .. }) => "lost".to_owned(),
                Err(error) => format!("failed {error}"),
            },
            ["ROUNDS", key, count, hold, lease] => {
                let most = self.rounds(key, count.parse().unwrap(), millis(hold), millis(lease)).await;
                format!("done {most}")
            }
            _ => panic!("unknown command {line:?}"),
        }
    }

    /// Takes the lock `count` times; returns the most turns that other holders had during one wait.
    async fn rounds(&self, key: &str, count: u32, hold: Duration, lease: Duration) -> usize {
        let mut most = 0;
        for _ in 0..count {
            let before = self.resource.turns().await;
            let guard = self.locks.acquire(key).lease(lease).wait(Duration::from_secs(60)).await.unwrap();
            most = most.max(self.resource.turns().await - before);
            for what in ["enter", "leave"] {
                let written = self.resource.write(guard.key(), guard.token(), what).await;
                assert_eq!(written, Write::Done, "the resource rejected a holder");
                if what == "enter" {
                    tokio::time::sleep(hold).await;
                }
            }
            guard.release().await.unwrap();
        }
        most
    }
}

/// A node in a process of its own. Dropping this value kills it.
pub(crate) struct Process {
    child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a process, optionally with a wrong clock, and waits until it has opened its store.
    pub(crate) async fn start(store: &str, namespace: &str, resource: &str, skew: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([&process_name(), "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(STORE, store).env(NAMESPACE, namespace).env(RESOURCE, resource);
        if let Some(skew) = skew {
            let library = libfaketime().expect("libfaketime: run `cargo xtask test`, or install faketime");
            command.env("LD_PRELOAD", library).env("FAKETIME", skew).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self { child, commands, answers };
        assert_eq!(process.answer().await, "ready");
        process
    }

    /// Sends a command, and waits for the response.
    pub(crate) async fn request(&mut self, command: &str) -> String {
        self.send(command).await;
        self.answer().await
    }

    pub(crate) async fn send(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> String {
        let answering = async {
            loop {
                let line = self.answers.next_line().await.unwrap().expect("the process has ended");
                // The first response follows the output of the test harness.
                if let Some((_, answer)) = line.split_once(RESPONSE_PREFIX) {
                    return answer.to_owned();
                }
            }
        };
        tokio::time::timeout(CONDITION_TIMEOUT, answering).await.expect("the process does not answer")
    }

    /// Waits for a grant, and returns its token.
    pub(crate) async fn granted(&mut self) -> u64 {
        let answer = self.answer().await;
        let token = answer.strip_prefix("granted ").unwrap_or_else(|| panic!("{answer}"));
        token.parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }
}

impl Drop for Process {
    /// Removes the files that libfaketime leaves behind when its process is killed.
    fn drop(&mut self) {
        let Some(id) = self.child.id() else { return };
        for name in ["sem.faketime_sem", "faketime_shm"] {
            let _ = std::fs::remove_file(format!("/dev/shm/{name}_{id}"));
        }
    }
}

/// The protected resource: a file that checks tokens and records every accepted write.
pub(crate) struct Resource {
    pool: SqlitePool,
}

/// The outcome of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Write {
    Done,
    Stale,
}

impl Resource {
    /// Opens the file. It must survive its processes, not the machine.
    pub(crate) async fn open(url: &str) -> Self {
        let options = SqliteConnectOptions::from_str(url)
            .unwrap()
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(Duration::from_secs(20));
        // If several processes switch a new file to a write-ahead log at once, SQLite fails all but one, without
        // waiting.
        let pool = loop {
            let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options.clone()).await;
            match pool {
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("5") => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                pool => break pool.unwrap(),
            }
        };
        sqlite::prepare(&pool).await.unwrap();
        let create = "create table if not exists events (
            id integer primary key, token integer not null, what text not null) strict";
        sqlx::query(create).execute(&pool).await.unwrap();
        Self { pool }
    }

    pub(crate) async fn write(&self, key: &LockKey, token: Token, what: &str) -> Write {
        let mut tx = self.pool.begin_with("begin immediate").await.unwrap();
        match sqlite::fence(&mut tx, key, token).await {
            Ok(()) => {}
            Err(FenceError::Stale(_)) => return Write::Stale,
            Err(error) => panic!("{error}"),
        }
        let insert = "insert into events (token, what) values (?1, ?2)";
        let token = i64::try_from(token.get()).unwrap();
        sqlx::query(insert).bind(token).bind(what).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
        Write::Done
    }

    /// Returns the number of turns that have begun.
    pub(crate) async fn turns(&self) -> usize {
        let count = "select count(*) from events where what = 'enter'";
        let turns: i64 = sqlx::query_scalar(count).fetch_one(&self.pool).await.unwrap();
        usize::try_from(turns).unwrap()
    }

    /// Returns all accepted writes, in order.
    pub(crate) async fn events(&self) -> Vec<(u64, String)> {
        let events: Vec<(i64, String)> =
            sqlx::query_as("select token, what from events order by id").fetch_all(&self.pool).await.unwrap();
        events.into_iter().map(|(token, what)| (u64::try_from(token).unwrap(), what)).collect()
    }
}

/// Checks that each holder left before the next one entered, and that the next one had a higher token. Returns the
/// number of turns.
pub(crate) fn assert_exclusive(events: &[(u64, String)]) -> usize {
    let mut last = 0;
    for pair in events.chunks(2) {
        let [(entered, enter), (left, leave)] = pair else { panic!("a holder did not leave: {pair:?}") };
        assert_eq!(
            (enter.as_str(), leave.as_str()),
            ("enter", "leave"),
            "two holders at the same time: {pair:?}"
        );
        assert_eq!(entered, left, "two holders at the same time");
        assert!(*entered > last, "token {entered} after {last}");
        last = *entered;
    }
    events.len() / 2
}
