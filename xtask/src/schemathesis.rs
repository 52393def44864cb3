//! Runs Schemathesis against a daemon: every response must conform to the API document, and none may be a
//! server error.
//!
//! It is installed once from `PyPI` into its own directory under `target/`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::run::{TaskResult, cargo, now, root};

/// The installed version.
const VERSION: &str = "4.32.5";

/// The default seed of the random number generator, and the variable that overrides it.
const SEED: &str = "20261115";
const SEED_VARIABLE: &str = "HOLDOFF_SCHEMATHESIS_SEED";

/// The largest number of generated cases for each operation, in addition to the boundary cases of its schema.
const CASES: &str = "25";

/// The checks of every response. The acceptance of every input that matches the schema is not checked: a
/// well-formed UUID may name no existing object.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
    response_headers_conformance,response_schema_conformance,unsupported_method";

/// Runs `cargo xtask schemathesis`.
pub(crate) fn build_and_run() -> TaskResult {
    cargo(&["build", "--quiet", "-p", "holdoff-cli"], &[])?;
    run(&root().join("target/debug/holdoff"))
}

/// Runs Schemathesis against a daemon of this binary.
pub(crate) fn run(holdoff: &Path) -> TaskResult {
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
        // The event stream never ends; it has its own test.
        .args(["--exclude-path", "/v1/events", "--request-timeout", "30"])
        // Python 3.11 miscounts its recursion depth when several threads generate cases.
        .args(["--workers", "1"])
        .args(["--generation-database", "none", "--no-color", "--warnings", "off"])
        .args(["--max-time", "300", "--suppress-health-check", "all"])
        .current_dir(Daemon::folder())
        .status()
        .map_err(|error| format!("cannot run schemathesis: {error}"))?;
    eprintln!("  {:.0} s", start.elapsed().as_secs_f64());
    daemon.check_alive()?;
    if status.success() { Ok(()) } else { Err(format!("schemathesis reported failures; seed {seed}")) }
}

/// Returns the program, and installs it if necessary.
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

/// A daemon with its own port and directory.
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
        let url =
            url.ok_or_else(|| format!("the daemon printed {greeting:?} instead of its URL"))?.to_owned();
        Ok(Self { child: child.into(), url })
    }

    fn folder() -> PathBuf {
        root().join("target/schemathesis-data")
    }

    fn check_alive(&self) -> TaskResult {
        match self.child.borrow_mut().try_wait() {
            Ok(None) => Ok(()),
            ended => Err(format!("the daemon ended during the run: {ended:?}")),
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
