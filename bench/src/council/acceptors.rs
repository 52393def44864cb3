//! Three acceptors in separate processes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use holdoff_council::acceptor::{AcceptorService, Settings};
use holdoff_council::runtime::AcceptorAddress;
use tempfile::TempDir;

use super::tally::{Counting, Tally};

/// The argument that makes this program act as an acceptor.
const PART: &str = "as-acceptor";

/// Acceptors that stop with the benchmark.
pub(super) struct Acceptors {
    each: Vec<Acceptor>,
    _folder: TempDir,
}

struct Acceptor {
    process: Child,
    output: BufReader<ChildStdout>,
    address: AcceptorAddress,
}

impl Acceptors {
    pub(super) fn start() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let acceptor = |name| Acceptor::start(&folder.path().join(name));
        let each = ["1", "2", "3"].map(acceptor).into_iter().collect::<Result<_, _>>()?;
        Ok(Self { each, _folder: folder })
    }

    pub(super) fn addresses(&self) -> Vec<AcceptorAddress> {
        self.each.iter().map(|acceptor| acceptor.address.clone()).collect()
    }

    /// Returns the counters of each acceptor.
    pub(super) fn tallies(&mut self) -> Result<Vec<Tally>, String> {
        self.each.iter_mut().map(Acceptor::tally).collect()
    }
}

impl Acceptor {
    /// Starts the acceptor and waits until it prints its key and address.
    fn start(folder: &Path) -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(this);
        command.arg(PART).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|error| error.to_string())?;
        let output = process.stdout.take().ok_or("a pipe that was asked for is missing")?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line).map_err(|error| error.to_string())?;
        let address = line.trim_end().parse();
        let address = address.map_err(|error| format!("an acceptor does not get ready: {error}"))?;
        Ok(Self { process, output, address })
    }

    fn tally(&mut self) -> Result<Tally, String> {
        let input = self.process.stdin.as_mut().ok_or("a pipe that was asked for is missing")?;
        input.write_all(b"tally\n").map_err(|error| error.to_string())?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        serde_json::from_str(&line).map_err(|error| format!("an acceptor does not count: {error}"))
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Acts as an acceptor, if this process was started for that.
pub(super) fn play(arguments: &[String]) -> Option<ExitCode> {
    let [part, folder] = arguments else { return None };
    if part != PART {
        return None;
    }
    Some(match serve(Path::new(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("council: an acceptor cannot start: {why}");
            ExitCode::FAILURE
        }
    })
}

/// Serves until the benchmark closes the pipe on which it requests the counters.
fn serve(folder: &Path) -> Result<(), String> {
    let counting = Counting::default();
    metrics::set_global_recorder(counting.clone()).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let mut settings = Settings::default();
    settings.listen.set_port(0);
    let service = runtime.block_on(AcceptorService::start(folder, &settings));
    let service = service.map_err(|error| error.to_string())?;
    println!("{}", AcceptorAddress { key: service.key(), address: service.address().to_string() });
    for line in std::io::stdin().lines() {
        line.map_err(|error| error.to_string())?;
        println!("{}", serde_json::json!(counting.tally()));
    }
    Ok(())
}
