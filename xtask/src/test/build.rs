//! Builds and lints the workspace in one pass.
//!
//! Clippy's driver is a compiler: as cargo's wrapper for workspace crates it lints each crate while it compiles it. The
//! dependencies are compiled once instead of once for clippy and once for the tests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::run::{TaskResult, cargo, cargo_command};

/// Makes cargo compile the workspace's crates by Clippy.
const WRAPPER: (&str, &str) = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");

/// A test binary.
pub(super) struct Binary {
    /// The crate and the target, such as `holdoff-work it`.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// The crate's folder, in which its tests run.
    pub(super) folder: PathBuf,
}

/// The result of a build.
pub(super) struct Build {
    pub(super) binaries: Vec<Binary>,
    /// The product's binaries, by name.
    programs: BTreeMap<String, PathBuf>,
    /// The packages that the compiler or Clippy warned about.
    warned: Vec<String>,
}

impl Build {
    /// Returns the path of one of the product's binaries.
    pub(super) fn program(&self, name: &str) -> Result<&Path, String> {
        self.programs.get(name).map(PathBuf::as_path).ok_or_else(|| format!("cargo built no binary {name}"))
    }

    /// Returns the variables by which cargo would tell a test where the binaries of its crate are.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let variable =
            |(name, path): (&String, &PathBuf)| (format!("CARGO_BIN_EXE_{name}"), path.display().to_string());
        self.programs.iter().map(variable).collect()
    }

    /// Makes a warning of the compiler or of Clippy an error.
    pub(super) fn deny_warnings(&self) -> TaskResult {
        if self.warned.is_empty() {
            return Ok(());
        }
        Err(format!("warnings in {}; they are printed above", self.warned.join(", ")))
    }
}

/// Compiles and lints all targets of the workspace with all features.
pub(super) fn workspace() -> Result<Build, String> {
    let arguments = ["test", "--workspace", "--all-features", "--all-targets", "--no-run"];
    eprintln!("\n▶ {}={} cargo {}", WRAPPER.0, WRAPPER.1, arguments.join(" "));
    let mut child = cargo_command(&arguments, &[WRAPPER])
        .args(["--message-format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    let output = child.stdout.take().ok_or("cargo has no output")?;
    let mut build = Build { binaries: Vec::new(), programs: BTreeMap::new(), warned: Vec::new() };
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("cannot read cargo's output: {error}"))?;
        // Build scripts may print lines of their own.
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        build.read(&message);
        if let Some(diagnostic) = text(&message, "/message/rendered") {
            eprintln!("{diagnostic}");
        }
        build.warned.extend(package_with_warnings(&message));
    }
    let status = child.wait().map_err(|error| format!("cannot wait for cargo: {error}"))?;
    if !status.success() {
        return Err("the workspace does not compile; cargo's messages are above".to_owned());
    }
    if build.binaries.is_empty() {
        return Err("cargo built no test binary".to_owned());
    }
    build.warned.dedup();
    Ok(build)
}

impl Build {
    fn read(&mut self, message: &Value) {
        let Some(executable) = text(message, "/executable").map(PathBuf::from) else { return };
        let target = text(message, "/target/name").unwrap_or_default().to_owned();
        if message.pointer("/profile/test") == Some(&Value::Bool(true)) {
            let manifest = PathBuf::from(text(message, "/manifest_path").unwrap_or_default());
            let folder = manifest.parent().map(PathBuf::from).unwrap_or_default();
            let kind = text(message, "/target/kind/0").unwrap_or_default();
            let package = package(message);
            let name = match kind {
                "lib" => format!("{package} lib"),
                "bin" => format!("{package} bin"),
                _ => format!("{package} {target}"),
            };
            self.binaries.push(Binary { name, path: executable, folder });
        } else if text(message, "/target/kind/0") == Some("bin") {
            self.programs.insert(target, executable);
        }
    }
}

fn text<'a>(message: &'a Value, pointer: &str) -> Option<&'a str> {
    message.pointer(pointer)?.as_str()
}

/// Reads the package's name out of its id: `path+file:///…/crates/work#holdoff-work@0.1.0` or `…/holdoff#0.1.0`.
fn package(message: &Value) -> String {
    let id = text(message, "/package_id").unwrap_or_default();
    let (path, version) = id.split_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next().unwrap_or(path).to_owned(),
    }
}

fn package_with_warnings(message: &Value) -> Option<String> {
    let is_warning = text(message, "/message/level") == Some("warning");
    is_warning.then(|| package(message))
}

/// Runs the examples in the documentation of every crate.
pub(super) fn doc_tests() -> TaskResult {
    cargo(&["test", "--workspace", "--all-features", "--doc", "--quiet"], &[WRAPPER])
}
