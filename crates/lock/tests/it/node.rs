//! A node in a process of its own, which executes commands.
//!
//! ```text
//! ACQUIRE key lease-ms wait-ms        granted TOKEN | failed WHY
//! WRITE what                          written | stale          with the token, whatever the guard thinks
//! VALID                               true | false
//! RELEASE                             released | lost | failed WHY
//! ROUNDS key count hold-ms lease-ms   done LONGEST-WAIT-US     acquires, enters, holds, leaves, releases
//! ```

pub(crate) mod ledger;
mod process;
mod resource;

use std::time::Duration;

use holdoff_lock::{Error, Guard, Locks, Settings};
use holdoff_testbed::kubernetes::real_cluster;
use tokio::io::{AsyncBufReadExt as _, BufReader};

pub(crate) use ledger::Cluster;
pub(crate) use process::Process;
pub(crate) use resource::{Resource, Write, one_at_a_time};

/// The environment variables that configure a process.
const STORE: &str = "HOLDOFF_NODE_STORE";
const NAMESPACE: &str = "HOLDOFF_NODE_NAMESPACE";
const RESOURCE: &str = "HOLDOFF_NODE_RESOURCE";

/// The prefix of a response. All other output is not part of the protocol.
const MARK: &str = "@ ";

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
        Locks::ledger(ledger::accept(invitation).await)
    } else {
        Locks::open(store).await.unwrap()
    };
    locks.with_settings(settings).unwrap()
}

#[test]
#[ignore = "the others run it, as a process of its own"]
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
        let mut node = Node { locks, resource: Resource::open(&resource).await, guard: None };
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        println!("{MARK}ready");
        while let Some(line) = lines.next_line().await.unwrap() {
            println!("{MARK}{}", node.obey(&line).await);
        }
    });
    std::process::exit(0);
}

struct Node {
    locks: Locks,
    resource: Resource,
    guard: Option<Guard>,
}

impl Node {
    async fn obey(&mut self, line: &str) -> String {
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
            _ => panic!("what is {line:?}?"),
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
                assert_eq!(written, Write::Done, "a holder was refused");
                if what == "enter" {
                    tokio::time::sleep(hold).await;
                }
            }
            guard.release().await.unwrap();
        }
        most
    }
}
