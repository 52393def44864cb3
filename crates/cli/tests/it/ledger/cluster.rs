//! The daemons of one ledger, which can be killed, paused and restarted.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::ledger::environment::{CommandOutput, DaemonAccess, Environment, until};
use crate::process::Process;

pub(crate) struct Daemon {
    pub(crate) access: DaemonAccess,
    /// The address of its node for other members.
    pub(crate) node: String,
    pub(crate) name: String,
    /// The key of its node.
    pub(crate) key: String,
    /// Its additional environment variables.
    pub(crate) variables: Vec<(&'static str, &'static str)>,
    folder: PathBuf,
    process: Option<Process>,
}

impl Daemon {
    /// Creates a daemon without a ledger, which does not run yet.
    pub(crate) fn new(access: DaemonAccess, node: String, folder: &Path, number: usize) -> Self {
        let name = format!("node-{number}");
        let folder = folder.join(&name);
        std::fs::create_dir_all(folder.join("ledger")).unwrap();
        Self { access, node, name, key: String::new(), variables: Vec::new(), folder, process: None }
    }

    /// Creates a ledger, or joins the ledger of this member, and starts the daemon.
    pub(crate) fn init_and_start(&mut self, member: Option<&str>) {
        let made = self.init_or_join(member);
        assert_eq!(made.code, 0, "{made:?}");
        made.json["key"].as_str().unwrap().clone_into(&mut self.key);
        self.start();
    }

    /// Runs the command that creates a ledger or joins the ledger of this member.
    pub(crate) fn init_or_join(&self, member: Option<&str>) -> CommandOutput {
        let mut words = match member {
            Some(member) => vec!["join", "--member", member, "--address", &self.node],
            None => vec!["init"],
        };
        words.extend(["--data", "data"]);
        self.offline(&words)
    }

    /// Runs a command of ledgers on the directory.
    pub(crate) fn offline(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(&self.configured(&mut self.access.offline(&self.folder, words)).output().unwrap())
    }

    /// Returns the key and address of its node.
    pub(crate) fn contact(&self) -> String {
        format!("{}@{}", self.key, self.node)
    }

    /// Returns the directory with the key and the store of its node.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }

    pub(crate) fn start(&mut self) {
        let mut command = self.access.command(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["serve", "--json", "--data", "data", "--grace", "0s", "--listen", &self.access.listen]);
        let log = OpenOptions::new().append(true).create(true).open(self.folder.join("log")).unwrap();
        let mut process = Process::start(self.configured(&mut command).stderr(log));
        let [greeting] = process.greeting();
        let greeting: Value = serde_json::from_str(&greeting).unwrap_or_else(|_| panic!("{}", self.log()));
        assert_eq!(greeting["ledger"], self.contact(), "{greeting}");
        self.process = Some(process);
    }

    /// Sets the directory and the identity, for the daemon and for the command that creates its ledger.
    fn configured<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.current_dir(&self.folder).env_remove("RUST_LOG");
        command.env("HOLDOFF_LEDGER_DATA", self.ledger()).envs(self.variables.iter().copied());
        command.env("HOLDOFF_LEDGER_LISTEN", &self.node).env("HOLDOFF_LEDGER_NAME", &self.name)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Returns the id of the running process.
    pub(crate) fn process_id(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// Copies the directory of its node. The daemon must not run.
    pub(crate) fn back_up(&self) {
        copy_files(&self.ledger(), &self.folder.join("backup"));
    }

    /// Replaces the directory of its node by the last copy. The daemon must not run.
    pub(crate) fn restore(&self) {
        copy_files(&self.folder.join("backup"), &self.ledger());
    }

    /// Starts the daemon without its store: its node joins the ledger of this member again, under the same key.
    pub(crate) fn join_again(&mut self, member: &str) {
        std::fs::remove_file(self.ledger().join("default.redb")).unwrap();
        let made = self.init_or_join(Some(member));
        assert_eq!((made.code, made.json["key"].as_str()), (0, Some(&*self.key)), "{made:?}");
        self.start();
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.take().unwrap().kill();
    }

    /// Terminates the daemon and waits for its exit.
    pub(crate) fn terminate(&mut self) {
        assert_eq!(self.process.take().unwrap().terminate(), Some(0), "{}", self.log());
    }

    /// Stops the process with SIGSTOP until it is continued.
    pub(crate) fn pause(&self) {
        self.process.as_ref().unwrap().signal("-STOP");
    }

    pub(crate) fn resume(&self) {
        self.process.as_ref().unwrap().signal("-CONT");
    }

    /// Returns the resident memory of the process, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.process.as_ref().unwrap().memory()
    }

    /// Returns the complete log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Returns the fields of each log line with this message.
    pub(crate) fn logged(&self, message: &str) -> Vec<Value> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.map(|line| line["fields"].clone()).filter(|fields| fields["message"] == message).collect()
    }

    /// Creates a file beside the ledger that fills the disk.
    pub(crate) fn fill_disk(&self) -> PathBuf {
        let path = self.ledger().join("filler");
        let mut filler = File::create(&path).unwrap();
        let block = vec![7; 64 * 1024];
        while std::io::Write::write_all(&mut filler, &block).is_ok() {}
        path
    }
}

/// Replaces a directory by a copy of another one.
fn copy_files(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

pub(crate) struct Cluster {
    pub(crate) daemons: Vec<Daemon>,
    /// The number of daemons that have replaced others.
    replaced: usize,
    folder: TempDir,
}

impl Cluster {
    /// Starts this number of daemons and waits until all of them vote.
    pub(crate) fn start(environment: &impl Environment, count: usize) -> Self {
        Self::start_with(environment, count, |_, _| ())
    }

    /// Starts a cluster and calls `prepare` on each daemon before it has a ledger.
    pub(crate) fn start_with(
        environment: &impl Environment,
        count: usize,
        mut prepare: impl FnMut(usize, &mut Daemon),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut daemons: Vec<Daemon> = Vec::new();
        for number in 0..count {
            let mut daemon =
                Daemon::new(environment.access(number), environment.node(number), folder.path(), number);
            prepare(number, &mut daemon);
            daemon.init_and_start(daemons.first().map(Daemon::contact).as_deref());
            daemons.push(daemon);
        }
        let cluster = Self { daemons, replaced: 0, folder };
        let [founder, others @ ..] = cluster.daemons.as_slice() else { panic!("no daemon") };
        until("the founder leads", || role(&founder.access, "leader"));
        for daemon in others {
            founder.access.run(&["members", "add", &daemon.contact(), "--name", &daemon.name]);
        }
        cluster.until_all_vote();
        cluster
    }

    /// Replaces a killed daemon by a new one at the same address, whose node has another key.
    pub(crate) fn replace(&mut self, environment: &impl Environment, number: usize) {
        self.replaced += 1;
        let folder = self.folder.path().join(format!("replaced-{}", self.replaced));
        let (access, node) = (environment.access(number), environment.node(number));
        let daemon = Daemon::new(access, node, &folder, number);
        let old = std::mem::replace(&mut self.daemons[number], daemon);
        std::fs::remove_dir_all(&old.folder).unwrap();
        let other = &self.daemons[self.others(number)[0]];
        let (access, member) = (other.access.clone(), other.contact());
        until("the killed member is removed", || {
            let output = access.try_run(&["members", "remove", &old.key]);
            if output.code == 0 || output.err.contains("is not a member") { Ok(()) } else { Err(output.err) }
        });
        let daemon = &mut self.daemons[number];
        daemon.init_and_start(Some(&member));
        until("the new member is added", || {
            let output = access.try_run(&["members", "add", &daemon.contact(), "--name", &daemon.name]);
            if output.code == 0 { Ok(()) } else { Err(output.err) }
        });
        self.until_all_vote();
    }

    /// Returns another daemon, which has no ledger and does not run yet.
    pub(crate) fn new_daemon(&self, environment: &impl Environment) -> Daemon {
        let number = self.daemons.len();
        Daemon::new(environment.access(number), environment.node(number), self.folder.path(), number)
    }

    pub(crate) fn until_all_vote(&self) {
        until("all daemons vote", || {
            for daemon in &self.daemons {
                let status = daemon.access.status();
                let members = status["members"].as_array().map(Vec::as_slice).unwrap_or_default();
                let voters = members.iter().filter(|member| member["votes"] == true).count();
                if voters != self.daemons.len() || status["leader"].is_null() {
                    return Err(format!("the status of {}: {status:#}", daemon.name));
                }
            }
            Ok(())
        });
    }

    /// Returns the number of the running daemon that leads.
    pub(crate) fn leader(&self) -> usize {
        self.leader_among(&(0..self.daemons.len()).collect::<Vec<_>>())
    }

    /// Returns the number of the running daemon among these that leads.
    pub(crate) fn leader_among(&self, numbers: &[usize]) -> usize {
        until("a daemon leads", || {
            let leads = |number: &&usize| {
                let daemon = &self.daemons[**number];
                daemon.is_running() && daemon.access.status()["role"] == "leader"
            };
            numbers.iter().find(leads).copied().ok_or_else(|| "no daemon leads".to_owned())
        })
    }

    /// Returns the numbers of all daemons except one.
    pub(crate) fn others(&self, one: usize) -> Vec<usize> {
        (0..self.daemons.len()).filter(|number| *number != one).collect()
    }

    pub(crate) fn accesses(&self) -> Vec<DaemonAccess> {
        self.daemons.iter().map(|daemon| daemon.access.clone()).collect()
    }

    /// Waits until all daemons have the same index and the same leader. Asserts that they then have the same history
    /// and state, and that none has met another history.
    pub(crate) fn until_equal(&self) -> Value {
        let seen = self.until_same_history();
        for status in &seen {
            assert_eq!(status["counts"]["diverged"], 0, "{status}");
        }
        seen[0].clone()
    }

    /// Waits and asserts like [`until_equal`](Self::until_equal), where a node may have met another history before.
    pub(crate) fn until_same_history(&self) -> Vec<Value> {
        let accesses = self.accesses();
        let seen = until("all daemons have the same index and leader", || {
            let seen: Vec<_> = accesses.iter().map(DaemonAccess::status).collect();
            let is_level = seen.iter().all(|status| {
                status["index"].is_u64()
                    && status["index"] == seen[0]["index"]
                    && status["leader"]["key"] == seen[0]["leader"]["key"]
                    && status["leader"].is_object()
                    && status["pending"] == 0
            });
            if is_level { Ok(seen) } else { Err(format!("{seen:#?}")) }
        });
        for status in &seen {
            for part in ["hash", "state_hash"] {
                assert_eq!(status[part], seen[0][part], "two histories: {seen:#?}");
            }
        }
        for access in &accesses {
            // A node on a busy machine may ask for a repetition.
            let verified = until("the node verifies its history", || {
                let output = access.try_run(&["verify"]);
                if output.code == 75 { Err(format!("{output:?}")) } else { Ok(output) }
            });
            assert_eq!(verified.code, 0, "{verified:?}");
        }
        seen
    }
}

/// Checks that the daemon's node has this role.
pub(crate) fn role(access: &DaemonAccess, role: &str) -> Result<(), String> {
    let status = access.status();
    if status["role"] == role { Ok(()) } else { Err(format!("{status:#}")) }
}
