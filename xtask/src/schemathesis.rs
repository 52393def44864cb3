//! Schemathesis against a running daemon: every answer must be as the API's document says, and none a failure of ours.
//!
//! It is installed from `PyPI` into a folder of its own under `target/`, once.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::run::{Done, cargo, now, root};

/// The version that is installed.
const VERSION: &str = "4.32.5";

/// Chance follows from it; another can be tried by this variable.
const SEED: &str = "20261115";
const SEED_VARIABLE: &str = "HOLDOFF_SCHEMATHESIS_SEED";

/// At most so many cases are made up for an operation, beside those at the edges of what its schema allows.
const CASES: &str = "25";

/// What every answer is held against. Whether what fits the schema is taken in is not asked: a UUID may be well formed,
/// and nobody's.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method";

/// `cargo xtask schemathesis`
pub(crate) fn build_and_run() -> Done {
    cargo(&["build", "--quiet", "-p", "holdoff-cli"], &[])?;
    run(&root().join("target/debug/holdoff"))
}

/// Runs it against a daemon of this binary.
pub(crate) fn run(holdoff: &Path) -> Done {
    let program = install()?;
    let seed = std::env::var(SEED_VARIABLE).unwrap_or_else(|_| SEED.to_owned());
    eprintln!("\n▶ schemathesis {VERSION} with seed {seed} ({SEED_VARIABLE} sets another)");
    let start = now();
    let daemon = Daemon::start(holdoff)?;
    let status = Command::new(program)
        .args(["run", &format!("{}/openapi.json", daemon.url), "--url", &daemon.url])
        .args([
            "--seed",
            &seed,
            "--max-examples",
            CASES,
            "--checks",
            CHECKS,
            "--phases",
            "examples,coverage,fuzzing",
        ])
        // Events have no end to wait for; a test of their own listens to them.
        .args(["--exclude-path", "/v1/events", "--request-timeout", "30"])
        // Python 3.11 loses count of its own recursion when several threads make cases up.
        .args(["--workers", "1"])
        .args(["--generation-database", "none", "--no-color", "--warnings", "off"])
        .args(["--max-time", "300", "--suppress-health-check", "all"])
        .current_dir(Daemon::folder())
        .status()
        .map_err(|error| format!("cannot run schemathesis: {error}"))?;
    eprintln!("  {:.0} s", start.elapsed().as_secs_f64());
    daemon.must_be_alive()?;
    if status.success() { Ok(()) } else { Err(format!("schemathesis found something; seed {seed}")) }
}

/// The program; installed if it is not there.
fn install() -> Result<PathBuf, String> {
    let folder = root().join("target/schemathesis");
    let program = folder.join("bin/schemathesis");
    let is_there = Command::new(&program).arg("--version").output();
    if is_there.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION)) {
        return Ok(program);
    }
    eprintln!("▶ installing schemathesis {VERSION} from PyPI into target/schemathesis");
    let step = |program: &Path, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).current_dir(root()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(format!("`{} {}` failed", program.display(), arguments.join(" "))),
            Err(error) => {
                Err(format!("cannot run {}: {error}; install Python 3 with venv", program.display()))
            }
        }
    };
    step(Path::new("python3"), &["-m", "venv", "--clear", "target/schemathesis"])?;
    let wanted = format!("schemathesis=={VERSION}");
    step(&folder.join("bin/pip"), &["install", "--quiet", "--disable-pip-version-check", &wanted])?;
    Ok(program)
}

/// A daemon on a port and in a folder of its own.
struct Daemon {
    child: std::cell::RefCell<Child>,
    url: String,
}

impl Daemon {
    fn start(holdoff: &Path) -> Result<Self, String> {
        let folder = Self::folder();
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let mut child = Command::new(holdoff)
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--data", "."])
            .env("RUST_LOG", "error")
            .current_dir(&folder)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the daemon: {error}"))?;
        let mut greeting = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut greeting).map_err(|error| error.to_string())?;
        }
        let url = greeting.split("\"url\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let url = url.ok_or_else(|| format!("the daemon said {greeting:?}"))?.to_owned();
        Ok(Self { child: child.into(), url })
    }

    fn folder() -> PathBuf {
        root().join("target/schemathesis-data")
    }

    fn must_be_alive(&self) -> Done {
        match self.child.borrow_mut().try_wait() {
            Ok(None) => Ok(()),
            ended => Err(format!("the daemon did not live through it: {ended:?}")),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}
