//! The stores of the suite, the functions that all subjects need, and a connection that can be cut.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use holdoff_lock::{Guard, LockRecord, Locks, Settings, Token};
use holdoff_testbed::kubernetes::Kubernetes;
use holdoff_testbed::{KUBECONFIG_VARIABLE, Postgres};
use rustix::process::Signal;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::node::{self, Cluster, Process, Resource};

pub(crate) use holdoff_testbed::CONDITION_TIMEOUT;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A store for one test. Tests that share a store use different namespaces of keys.
pub(crate) struct TestStore {
    pub(crate) store: String,
    pub(crate) namespace: String,
    pub(crate) folder: TempDir,
    pub(crate) stand_in: Option<Kubernetes>,
    pub(crate) ledger: Option<Cluster>,
    memory: Option<Locks>,
    // In the real cluster only one test at a time prunes locks or raises the floor.
    _alone: Option<OwnedMutexGuard<()>>,
}

impl TestStore {
    fn at(store: String) -> Self {
        let (namespace, folder) = (Uuid::new_v4().to_string(), TempDir::new().unwrap());
        Self { store, namespace, folder, stand_in: None, ledger: None, memory: None, _alone: None }
    }

    pub(crate) fn memory() -> Self {
        Self { memory: Some(Locks::memory()), ..Self::at("memory:".to_owned()) }
    }

    pub(crate) fn sqlite() -> Self {
        let mut test_store = Self::at(String::new());
        test_store.store = test_store.file("locks.db");
        test_store
    }

    pub(crate) async fn postgres() -> Self {
        let create = || Postgres::shared().create_database("locks");
        Self::at(tokio::task::spawn_blocking(create).await.unwrap())
    }

    pub(crate) async fn stand_in() -> Self {
        let server = Kubernetes::start().await;
        let store = format!("stand-in:{}", server.url());
        Self { stand_in: Some(server), ..Self::at(store) }
    }

    /// Returns a ledger of three nodes.
    pub(crate) async fn ledger() -> Self {
        Self { ledger: Some(Cluster::new(3).await), ..Self::at("a ledger".to_owned()) }
    }

    /// Returns the real cluster, if there is one.
    pub(crate) async fn cluster() -> Option<Self> {
        static ALONE: std::sync::LazyLock<Arc<Mutex<()>>> = std::sync::LazyLock::new(Arc::default);
        if std::env::var_os(KUBECONFIG_VARIABLE).is_none() {
            holdoff_testbed::skip(&format!("${KUBECONFIG_VARIABLE} names no Kubernetes cluster"));
            return None;
        }
        let alone = Arc::clone(&ALONE).lock_owned().await;
        Some(Self { _alone: Some(alone), ..Self::at("cluster:".to_owned()) })
    }

    pub(crate) fn is_kubernetes(&self) -> bool {
        self.store.starts_with("stand-in:") || self.store.starts_with("cluster:")
    }

    /// Returns the URL of a file beside the store.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("sqlite:{}", self.folder.path().join(name).display())
    }

    /// Returns a node with connections and queues of its own. Locks in memory belong to one node.
    pub(crate) async fn node(&self) -> Locks {
        self.node_with(|settings| settings).await
    }

    pub(crate) async fn node_with(&self, choose: impl FnOnce(Settings) -> Settings) -> Locks {
        let settings = choose(Settings::default().with_namespace(&self.namespace));
        match (&self.memory, &self.ledger) {
            (Some(locks), _) => locks.with_settings(settings).unwrap(),
            (None, Some(cluster)) => Locks::ledger(cluster.next()).with_settings(settings).unwrap(),
            (None, None) => node::open(&self.store, settings).await,
        }
    }

    /// Returns the locks of one node of the ledger.
    pub(crate) fn locks_of_node(&self, node: usize) -> Locks {
        let settings = Settings::default().with_namespace(&self.namespace);
        Locks::ledger(self.ledger.as_ref().unwrap().at(node)).with_settings(settings).unwrap()
    }

    /// Returns a node that uses the store at another URL.
    pub(crate) async fn node_at(&self, store: &str) -> Locks {
        node::open(store, Settings::default().with_namespace(&self.namespace)).await
    }

    /// Returns a node in a process of its own.
    pub(crate) async fn process(&self) -> Process {
        self.start_process(None).await
    }

    /// Returns a node in a process of its own, with a wrong clock.
    pub(crate) async fn process_off_by(&self, skew: &str) -> Process {
        self.start_process(Some(skew)).await
    }

    async fn start_process(&self, skew: Option<&str>) -> Process {
        let store = match &self.ledger {
            Some(cluster) => cluster.invite(true).await,
            None => self.store.clone(),
        };
        Process::start(&store, &self.namespace, &self.file("resource.db"), skew).await
    }

    /// Pauses a process, but not in the middle of a write to the file: no process could write to the file until it
    /// resumes.
    pub(crate) async fn pause(&self, process: &Process) {
        process.signal(Signal::STOP);
        while self.store.starts_with("sqlite:") && !can_be_written(&self.store).await {
            process.signal(Signal::CONT);
            tokio::time::sleep(Duration::from_millis(1)).await;
            process.signal(Signal::STOP);
        }
    }

    /// Returns the resource that the processes write to.
    pub(crate) async fn resource(&self) -> Resource {
        Resource::open(&self.file("resource.db")).await
    }
}

/// Returns whether a SQLite file can be written: no process is writing, or was paused in a write.
async fn can_be_written(file: &str) -> bool {
    let options = SqliteConnectOptions::from_str(file).unwrap().busy_timeout(SECOND);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    let written = sqlx::raw_sql("begin immediate; rollback").execute(&mut connection).await;
    connection.close().await.unwrap();
    written.is_ok()
}

/// Instantiates tests for every store.
macro_rules! on_every_store {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $crate::conformance::test_store::in_time(super::$test($crate::conformance::test_store::TestStore::memory())).await;
            })*
        }
        $crate::conformance::test_store::on_shared_stores!($($test),*);
    };
}

/// Instantiates tests for the stores that several nodes can share.
macro_rules! on_shared_stores {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $crate::conformance::test_store::in_time(super::$test($crate::conformance::test_store::TestStore::sqlite())).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $crate::conformance::test_store::in_time(super::$test($crate::conformance::test_store::TestStore::postgres().await)).await;
            })*
        }
        mod kubernetes_stand_in {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $crate::conformance::test_store::in_time(super::$test($crate::conformance::test_store::TestStore::stand_in().await)).await;
            })*
        }
        mod ledger {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $crate::conformance::test_store::in_time(async {
                    super::$test($crate::conformance::test_store::TestStore::ledger().await).await;
                })
                .await;
            })*
        }
        mod kubernetes_cluster {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(test_store) = $crate::conformance::test_store::TestStore::cluster().await {
                    $crate::conformance::test_store::in_time(super::$test(test_store)).await;
                }
            })*
        }
    };
}
pub(crate) use {on_every_store, on_shared_stores};

/// Fails a test that hangs.
pub(crate) async fn in_time(test: impl Future<Output = ()>) {
    tokio::time::timeout(2 * CONDITION_TIMEOUT, test).await.expect("the test hangs");
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(CONDITION_TIMEOUT, waiting)
        .await
        .unwrap_or_else(|_| panic!("timed out waiting: {what}"));
}

/// Acquires a lock, with the time limit of a condition.
pub(crate) async fn acquire(locks: &Locks, key: &str) -> Guard {
    locks.acquire(key).wait(CONDITION_TIMEOUT).await.unwrap()
}

/// Acquires and releases a lock, and returns the token.
pub(crate) async fn pass(locks: &Locks, key: &str) -> Token {
    let guard = acquire(locks, key).await;
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

/// Raises the floor far above the time: from now on tokens count the grants of a key. Returns the floor.
pub(crate) async fn count_tokens(locks: &Locks) -> Token {
    let present = locks.raise_floor(Token::new(0)).await.unwrap();
    locks.raise_floor(Token::new(present.get() + (1 << 52))).await.unwrap()
}

pub(crate) async fn inspect(locks: &Locks, key: &str) -> LockRecord {
    locks.inspect(key).await.unwrap().expect("the lock exists")
}

/// Returns the token of the holder, if there is one.
pub(crate) async fn held_with(locks: &Locks, key: &str) -> Option<Token> {
    locks.inspect(key).await.unwrap()?.holder.map(|holder| holder.token)
}

/// The messages by which Postgres confirms a query of one row, or a change to one row. It sends them after the commit.
const DONE: [&[u8]; 2] = [b"SELECT 1\0", b"UPDATE 1\0"];

pub(crate) struct Proxy {
    pub(crate) port: u16,
    connection: Arc<Connection>,
}

struct Connection {
    upstream: SocketAddr,
    cut: CancellationToken,
    loses_next: AtomicBool,
    lost: AtomicUsize,
}

impl Proxy {
    /// Returns a proxy to a port of this machine.
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let connection = Arc::new(Connection {
            upstream: (Ipv4Addr::LOCALHOST, port).into(),
            cut: CancellationToken::new(),
            loses_next: AtomicBool::new(false),
            lost: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&connection);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let connection = Arc::clone(&accepting);
                tokio::spawn(async move { connection.carry(client).await });
            }
        });
        Self { port: own, connection }
    }

    /// Closes all connections, and every new one.
    pub(crate) fn cut(&self) {
        self.connection.cut.cancel();
    }

    /// Loses the response of the next completed query: the connection closes instead.
    pub(crate) fn lose_next_response(&self) {
        self.connection.loses_next.store(true, Ordering::SeqCst);
    }

    /// Returns the number of lost responses.
    pub(crate) fn lost(&self) -> usize {
        self.connection.lost.load(Ordering::SeqCst)
    }
}

impl Connection {
    async fn carry(&self, mut client: TcpStream) -> Option<()> {
        let mut server = TcpStream::connect(self.upstream).await.ok()?;
        let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
        loop {
            tokio::select! {
                () = self.cut.cancelled() => return None,
                read = client.read(&mut asked) => {
                    let length = read.ok().filter(|length| *length > 0)?;
                    server.write_all(&asked[..length]).await.ok()?;
                }
                read = server.read(&mut answered) => {
                    let answer = &answered[..read.ok().filter(|length| *length > 0)?];
                    let is_done =
                        DONE.iter().any(|done| answer.windows(done.len()).any(|part| part == *done));
                    if is_done && self.loses_next.swap(false, Ordering::SeqCst) {
                        self.lost.fetch_add(1, Ordering::SeqCst);
                        return None;
                    }
                    client.write_all(answer).await.ok()?;
                }
            }
        }
    }
}
