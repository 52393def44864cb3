//! A `PgBouncer` in transaction mode before a temporary cluster.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::account::Account;
use crate::{Postgres, free_port};

/// Runs `PgBouncer`, says when it accepts connections, waits until the pipe is closed, and removes its directory.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
PATH="$PATH:/usr/sbin"
pgbouncer --quiet "$1/pgbouncer.ini" </dev/null >/dev/null & bouncer=$!
for _ in $(seq 300); do
    "$2" --quiet --timeout=1 --host=127.0.0.1 --port="$3" && echo ready && break
    sleep 0.05
done
exec >&-
cat >/dev/null
kill -9 "$bouncer"
cd /
rm -rf "$1"
"#;

/// A pooler on loopback. It ends with the process that started it.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    directory: PathBuf,
    shell: Child,
}

impl PgBouncer {
    /// Starts `PgBouncer` in transaction mode, with few connections to each database of the cluster: its clients share
    /// them all the time.
    pub fn start(postgres: &Postgres) -> Self {
        let (account, directory) = Account::with_directory();
        let port = free_port();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = 5\nmax_client_conn = 500\nlogfile = {directory}/log\n",
            server = postgres.port(),
            directory = directory.display(),
        );
        std::fs::write(directory.join("pgbouncer.ini"), settings).expect("the directory is new");
        let mut shell = account.command(Path::new("/bin/sh"), &directory);
        shell
            .args(["-c", SCRIPT, "pooler"])
            .args([&directory, &postgres.bin("pg_isready")])
            .arg(port.to_string());
        // A group of its own, so that a signal to this process's group does not end it.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut shell = shell.spawn().expect("a shell for PgBouncer");
        let mut line = String::new();
        let output = shell.stdout.take().map(|output| BufReader::new(output).read_line(&mut line));
        let started = Self { port, directory, shell };
        assert!(line == "ready\n", "PgBouncer does not start ({output:?}); its log:\n{}", started.log());
        started
    }

    /// Returns whether `PgBouncer` is installed.
    pub fn is_installed() -> bool {
        let runs = |program: &str| {
            Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success())
        };
        runs("pgbouncer") || runs("/usr/sbin/pgbouncer")
    }

    /// Returns the URL of a database of the cluster through the pooler, in holdoff's mode for it.
    pub fn url(&self, database: &str) -> String {
        let name = database.rsplit('/').next().unwrap_or_default();
        format!("postgres://postgres@127.0.0.1:{}/{name}?pool_mode=transaction", self.port)
    }

    /// Returns the content of its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // When the shell has ended, the pooler has ended too.
        let _ = self.shell.wait();
    }
}
