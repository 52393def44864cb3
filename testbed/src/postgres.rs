//! A temporary Postgres cluster.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::account::Account;
use crate::{BINARIES_VARIABLE, free_port, postgres_binaries};

/// The number of ports to try if the server does not start.
const MAX_STARTS: u32 = 5;

/// Waits until the pipe is closed, then stops the server and removes its directory. Each command is repeated
/// once, for a server or an `initdb` that was still starting. A server without its directory would end by
/// itself, but late.
const CLEANUP_SCRIPT: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
cd /
stop() { "$1" stop -D "$2/data" -m immediate -w; }
stop "$@" || { sleep 1; stop "$@"; }
rm -rf "$2" || { sleep 1; rm -rf "$2"; }
"#;

/// The environment variable with the port of the cluster that the test runner has started for all test
/// processes of one run.
///
/// Its name does not begin with `HOLDOFF_`, because the product warns of unknown variables with that prefix.
pub const SHARED_VARIABLE: &str = "TESTBED_POSTGRES_PORT";

/// A temporary cluster on loopback; its superuser `postgres` needs no password.
///
/// The cluster stops and its directory is removed when the value is dropped, and also when the process ends
/// without dropping it. A cluster that [`Postgres::shared`] found through [`SHARED_VARIABLE`] belongs to the
/// test runner and outlives the value.
#[derive(Debug)]
pub struct Postgres {
    binaries: PathBuf,
    port: u16,
    databases: AtomicU32,
    /// The files and processes of the cluster; `None` if the test runner owns them.
    owned: Option<Owned>,
}

/// The parts of a cluster that only its owner may touch.
#[derive(Debug)]
struct Owned {
    directory: PathBuf,
    account: Account,
    // Stops the server and removes the directory; dropped with the rest.
    _cleanup: CleanupProcess,
}

impl Postgres {
    /// Starts a cluster with the options for tests; takes a few seconds.
    pub fn start() -> Self {
        Self::start_with(&Options::default())
    }

    /// Starts a cluster with these options.
    pub fn start_with(options: &Options) -> Self {
        let binaries = binaries();
        let (account, directory) = Account::with_directory();
        let cleanup = CleanupProcess::over(&directory, &binaries.join("pg_ctl"), account);
        let owned = Some(Owned { directory, account, _cleanup: cleanup });
        let mut cluster = Self { binaries, port: 0, databases: AtomicU32::new(0), owned };
        cluster.initialize();
        cluster.start_on_free_port(options);
        cluster
    }

    /// Returns the one cluster that tests share: the test runner's, if [`SHARED_VARIABLE`] names its port, else a
    /// cluster of this process, which the first call starts.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var(SHARED_VARIABLE) {
            Ok(port) => Self::attach(&port),
            Err(_) => Self::start(),
        })
    }

    fn attach(port: &str) -> Self {
        let port = port.parse().unwrap_or_else(|_| panic!("${SHARED_VARIABLE} is {port:?}, not a port"));
        Self { binaries: binaries(), port, databases: AtomicU32::new(0), owned: None }
    }

    /// Returns the URL of a database of this cluster.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates an empty database whose name begins with `prefix`, and returns its URL.
    pub fn create_database(&self, prefix: &str) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        // Several processes create databases in one cluster; the process id keeps their names apart.
        let name = format!("{prefix}_{}_{number}", std::process::id());
        self.psql("postgres", &format!("create database \"{name}\""));
        self.url(&name)
    }

    /// Drops the databases whose creating process has ended.
    ///
    /// Postgres' autovacuum visits every database of a cluster, so hundreds of abandoned databases slow all
    /// others down.
    pub fn drop_abandoned_databases(&self) {
        let names =
            self.psql("postgres", "select datname from pg_database where datname ~ '_[0-9]+_[0-9]+$'");
        for name in names.lines().filter(|name| !is_creator_alive(name)) {
            self.psql("postgres", &format!("drop database if exists \"{name}\" with (force)"));
        }
    }

    /// Runs statements in a database by `psql`; returns the bare rows, columns separated by `|`.
    pub fn psql(&self, database: &str, statements: &str) -> String {
        let mut psql = Command::new(self.bin("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]);
        run(psql.args(["--dbname", &self.url(database), "--command", statements]))
            .unwrap_or_else(|reason| panic!("{statements:?} in {database}: {reason}"))
    }

    /// Stops the server like a crash: it writes no checkpoint and disconnects all clients.
    pub fn stop_immediately(&self) {
        self.pg_ctl("stop").unwrap_or_else(|reason| panic!("cannot stop Postgres: {reason}"));
    }

    /// Crashes the server, if it runs, and starts it again; returns when it accepts connections.
    pub fn restart_immediately(&self) {
        self.pg_ctl("restart")
            .unwrap_or_else(|reason| panic!("cannot restart Postgres: {reason}\n{}", self.log()));
    }

    /// Shuts the server down as an operator would, and starts it again.
    pub fn restart(&self) {
        self.pg_ctl_in("restart", "fast")
            .unwrap_or_else(|reason| panic!("cannot restart Postgres: {reason}\n{}", self.log()));
    }

    /// Suspends all processes of the server, so that it answers nothing, until the returned value is dropped.
    #[must_use]
    pub fn hang(&self) -> Hung {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("the server runs");
        let postmaster = file.lines().next().unwrap_or_default().to_owned();
        // The first process starts all others, so it is the first to stop.
        let mut hung = Hung { processes: vec![postmaster.clone()] };
        hung.signal("-STOP");
        hung.processes.extend(children(&postmaster));
        hung.signal("-STOP");
        hung
    }

    /// Takes a base backup of the running cluster. A later one replaces it.
    pub fn back_up(&self) {
        self.base_backup(self, &self.backup());
    }

    /// Crashes the server, if it runs, replaces its files by those of [`back_up`](Self::back_up), and starts it again.
    pub fn restore_backup(&self) {
        self.stop_immediately();
        std::fs::remove_dir_all(self.data()).expect("the server has stopped");
        run(self.command("/bin/cp").arg("--archive").arg(self.backup()).arg(self.data()))
            .unwrap_or_else(|reason| panic!("cannot copy the base backup: {reason}"));
        self.pg_ctl("start")
            .unwrap_or_else(|reason| panic!("cannot start Postgres: {reason}\n{}", self.log()));
    }

    /// Starts a standby of this cluster from a base backup. It receives no later change: it lags by all of them.
    #[must_use]
    pub fn start_lagging_standby(&self, options: &Options) -> Self {
        let (account, directory) = Account::with_directory();
        let cleanup = CleanupProcess::over(&directory, &self.bin("pg_ctl"), account);
        let owned = Some(Owned { directory, account, _cleanup: cleanup });
        let binaries = self.binaries.clone();
        let mut standby = Self { binaries, port: 0, databases: AtomicU32::new(0), owned };
        standby.base_backup(self, &standby.data());
        run(standby.command("/usr/bin/touch").arg(standby.data().join("standby.signal")))
            .unwrap_or_else(|reason| panic!("cannot mark the standby: {reason}"));
        standby.start_on_free_port(options);
        standby
    }

    /// Promotes a standby to a primary.
    pub fn promote(&self) {
        let mut pg_ctl = self.command("pg_ctl");
        pg_ctl.arg("promote").arg("-D").arg(self.data()).args(["-w", "-t", "60"]);
        run(&mut pg_ctl)
            .unwrap_or_else(|reason| panic!("cannot promote the standby: {reason}\n{}", self.log()));
    }

    /// Returns the port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns a program of the same installation, such as `psql` or `pgbench`.
    pub fn bin(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    /// Returns the content of the server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn initialize(&self) {
        let mut initdb = self.command("initdb");
        initdb.arg("-D").arg(self.data()).args(["-U", "postgres", "-A", "trust", "-E", "UTF8"]);
        run(initdb.args(["--locale=C", "--no-sync"]))
            .unwrap_or_else(|reason| panic!("initdb failed: {reason}"));
    }

    /// Copies the files of a running cluster into a directory of this one.
    fn base_backup(&self, from: &Self, into: &Path) {
        let _ = std::fs::remove_dir_all(into);
        let mut pg_basebackup = self.command("pg_basebackup");
        pg_basebackup.arg("-D").arg(into).args(["-h", "127.0.0.1", "-p", &from.port.to_string()]);
        run(pg_basebackup.args(["-U", "postgres", "-X", "stream", "-c", "fast", "--no-sync"]))
            .unwrap_or_else(|reason| panic!("pg_basebackup failed: {reason}"));
    }

    fn start_on_free_port(&mut self, options: &Options) {
        let mut reason = String::new();
        for _ in 0..MAX_STARTS {
            self.port = free_port();
            self.add_to_configuration(&options.lines(self.port));
            match self.pg_ctl("start") {
                Ok(_) => return,
                Err(failure) => reason = failure,
            }
        }
        panic!("Postgres does not start: {reason}\n{}", self.log());
    }

    fn add_to_configuration(&self, lines: &str) {
        let path = self.data().join("postgresql.conf");
        let file = std::fs::OpenOptions::new().append(true).open(path);
        file.and_then(|mut file| file.write_all(lines.as_bytes()))
            .expect("postgresql.conf takes our settings");
    }

    /// Runs `pg_ctl`, which waits until the command has completed. Without `-l` the server would keep our
    /// output open.
    fn pg_ctl(&self, what: &str) -> Result<String, String> {
        self.pg_ctl_in(what, "immediate")
    }

    fn pg_ctl_in(&self, what: &str, mode: &str) -> Result<String, String> {
        let mut pg_ctl = self.command("pg_ctl");
        pg_ctl.arg(what).arg("-D").arg(self.data()).args(["-w", "-t", "60"]);
        if what != "start" {
            pg_ctl.args(["-m", mode]);
        }
        if what != "stop" {
            pg_ctl.arg("-l").arg(self.log_path());
        }
        run(&mut pg_ctl)
    }

    fn command(&self, program: &str) -> Command {
        let owned = self.owned();
        owned.account.command(&self.bin(program), &owned.directory)
    }

    fn data(&self) -> PathBuf {
        self.owned().directory.join("data")
    }

    fn backup(&self) -> PathBuf {
        self.owned().directory.join("backup")
    }

    fn log_path(&self) -> PathBuf {
        self.owned().directory.join("log")
    }

    fn owned(&self) -> &Owned {
        self.owned
            .as_ref()
            .expect("a test that stops the server or reads its log starts a cluster of its own")
    }
}

/// The suspended processes of a server. They continue when the value is dropped.
#[derive(Debug)]
pub struct Hung {
    processes: Vec<String>,
}

impl Hung {
    fn signal(&self, signal: &str) {
        run(Command::new("kill").arg(signal).args(&self.processes))
            .unwrap_or_else(|reason| panic!("cannot signal Postgres: {reason}"));
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

/// Returns the processes that this process has started.
fn children(parent: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("the list of processes").flatten();
    let names = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let is_child = |process: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The name of the program, in parentheses, may contain spaces; the state and the parent follow.
        let parent_of = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        parent_of == Some(parent)
    };
    names.filter(is_child).collect()
}

fn binaries() -> PathBuf {
    postgres_binaries().unwrap_or_else(|| {
        panic!(
            "Postgres' server binaries are missing (looked in ${BINARIES_VARIABLE}, PATH and \
             /usr/lib/postgresql): run `cargo xtask test`, which installs them, or install the package postgresql"
        )
    })
}

/// Returns whether the process in a name from [`Postgres::create_database`] still exists.
fn is_creator_alive(database: &str) -> bool {
    let creator = database.rsplit('_').nth(1).unwrap_or_default();
    Path::new("/proc").join(creator).exists()
}

/// Runs a command to its end without the caller's `PG…` variables; returns its output, or the error.
fn run(command: &mut Command) -> Result<String, String> {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    let shown = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|error| format!("cannot run {shown}: {error}"))?;
    let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        return Ok(printed(&output.stdout));
    }
    Err(format!("{shown}: {}\n{}", printed(&output.stderr), printed(&output.stdout)))
}

/// The options of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether a commit waits for the disk. Off by default: a test's data need not survive a crash of the
    /// machine, and it survives a crash of the server either way.
    pub fsync: bool,
    /// Further lines of `postgresql.conf`, each a name and a value; they override all others.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// Returns the lines to add to `postgresql.conf`.
    fn lines(&self, port: u16) -> String {
        let switch = if self.fsync { "on" } else { "off" };
        let own = [
            // Loopback only: the path of a socket would have to be short and accessible to all accounts.
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("unix_socket_directories", String::new()),
            ("port", port.to_string()),
            ("max_connections", "200".to_owned()),
            ("fsync", switch.to_owned()),
            ("full_page_writes", switch.to_owned()),
        ];
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let further = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.chain(further).fold(String::from("\n"), |mut lines, (name, value)| {
            // Writing into a string cannot fail.
            let _ = writeln!(lines, "{name} = '{}'", value.replace('\'', "''"));
            lines
        })
    }
}

/// A process that holds the other end of a pipe: it stops the cluster when this process ends, even by
/// SIGKILL.
#[derive(Debug)]
struct CleanupProcess(Child);

impl CleanupProcess {
    fn over(directory: &Path, pg_ctl: &Path, account: Account) -> Self {
        let mut shell = account.command(Path::new("/bin/sh"), directory);
        shell.args(["-c", CLEANUP_SCRIPT, "watcher"]).args([pg_ctl, directory]);
        // The watcher has its own process group, so that a signal to this process group does not end it.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self(shell.spawn().expect("a shell for the cleanup"))
    }
}

impl Drop for CleanupProcess {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // When the watcher has ended, the cluster has ended too.
        let _ = self.0.wait();
    }
}
